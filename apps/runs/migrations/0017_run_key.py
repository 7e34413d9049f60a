from django.db import migrations

from apps.runtime.migration_ops import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("chrono_runs", "0016_transactional")]

    operations = [run_sql_file(__file__)]
