from django.db import migrations

from apps.runtime.migration_ops import index_leaves


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("chrono_runs", "0004_backfill")]

    operations = [
        # Counts what a job missed and skipped; what fires on time does not pay for it.
        index_leaves(
            table="chrono_occurrence",
            name="chrono_occurrence_not_fired",
            on="(part, job_id, scheduled_for) WHERE outcome = 2 OR kind = 2",
        )
    ]
