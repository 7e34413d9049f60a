from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("chrono_jobs", "0006_pause_until_index")]

    operations = [
        AddIndexConcurrently(
            model_name="job",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", True)),
                fields=["tenant", "id"],
                name="chrono_job_living",
            ),
        ),
        AddIndexConcurrently(
            model_name="job",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", False)),
                fields=["tenant", "id"],
                name="chrono_job_deleted",
            ),
        ),
    ]
