from django.db import migrations

from apps.runtime.migration_ops import run_sql_file


class Migration(migrations.Migration):
    atomic = False  # Beside runs that are held and let in.
    dependencies = [("chrono_queue", "0004_gate_order")]

    operations = [run_sql_file(__file__)]
