from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("chrono_jobs", "0005_pause_until")]

    operations = [
        migrations.RunSQL(
            "ALTER TABLE chrono_job VALIDATE CONSTRAINT chrono_job_paused_until",
            migrations.RunSQL.noop,
        ),
        AddIndexConcurrently(
            model_name="job",
            index=models.Index(
                condition=models.Q(("paused", True), ("paused_until__isnull", False)),
                fields=["paused_until"],
                name="chrono_job_resume",
            ),
        ),
    ]
