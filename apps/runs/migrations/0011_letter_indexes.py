from django.db import migrations


def made_beside_writes(name: str, on: str) -> list[migrations.RunSQL]:
    """Return what makes an index anew: one that was broken off is left invalid."""
    drop = f"DROP INDEX CONCURRENTLY IF EXISTS {name}"
    make = f"CREATE INDEX CONCURRENTLY {name} ON chrono_dead_letter {on}"
    return [migrations.RunSQL(drop, drop), migrations.RunSQL(make, drop)]


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("chrono_runs", "0010_rerun")]

    operations = [
        *made_beside_writes(
            "chrono_dead_letter_open", "(tenant, run_id) WHERE closed IS NULL"
        ),
        *made_beside_writes("chrono_dead_letter_job", "(job_id, run_id)"),
    ]
