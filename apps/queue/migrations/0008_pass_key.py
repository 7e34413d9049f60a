from django.db import migrations

from apps.runtime.migration_ops import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("chrono_queue", "0007_pass")]

    operations = [run_sql_file(__file__)]
