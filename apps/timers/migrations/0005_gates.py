from django.db import migrations

from apps.runtime.migration_ops import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("chrono_timers", "0004_given_back")]

    operations = [run_sql_file(__file__)]
