from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("chrono_jobs", "0008_tags")]

    operations = [
        # Reads and writes go on meanwhile.
        migrations.RunSQL(
            "ALTER TABLE chrono_job VALIDATE CONSTRAINT chrono_job_tags",
            migrations.RunSQL.noop,
        ),
    ]
