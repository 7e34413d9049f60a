from django.db import migrations

from apps.runtime.migration_ops import index_beside_writes


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("chrono_runs", "0010_rerun")]

    operations = [
        *index_beside_writes(
            table="chrono_dead_letter",
            name="chrono_dead_letter_open",
            on="(tenant, run_id) WHERE closed IS NULL",
        ),
        *index_beside_writes(
            table="chrono_dead_letter",
            name="chrono_dead_letter_job",
            on="(job_id, run_id)",
        ),
    ]
