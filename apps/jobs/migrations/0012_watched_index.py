from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("chrono_jobs", "0011_job_event")]

    operations = [
        AddIndexConcurrently(
            model_name="jobrevision",
            index=models.Index(
                condition=models.Q(("policy__has_key", "max_time_since_success")),
                fields=["job", "revision"],
                name="chrono_job_revision_watched",
            ),
        ),
    ]
