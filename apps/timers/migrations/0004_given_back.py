from django.db import migrations

from apps.runtime.migration_ops import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("chrono_timers", "0003_plan_end")]

    operations = [run_sql_file(__file__)]
