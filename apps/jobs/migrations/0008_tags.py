from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chrono_jobs", "0007_list_indexes")]

    operations = [
        # Beside old code: the column has a default in the database, and the check is
        # validated by the next migration, without a lock against writers.
        migrations.RunSQL("SET LOCAL lock_timeout = '2s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="job",
            name="tags",
            field=ArrayField(
                base_field=models.TextField(), blank=True, db_default=[], default=list
            ),
        ),
        migrations.RunSQL(
            "ALTER TABLE chrono_job ADD CONSTRAINT chrono_job_tags CHECK ("
            "tags = '{}' OR array_ndims(tags) = 1 AND cardinality(tags) <= 20 "
            "AND array_to_string(tags, ' ', '?') ~ "
            "'^[a-z0-9_.:/-]{1,50}( [a-z0-9_.:/-]{1,50})*$') NOT VALID",
            "ALTER TABLE chrono_job DROP CONSTRAINT chrono_job_tags",
        ),
    ]
