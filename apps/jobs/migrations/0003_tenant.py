from django.db import migrations

from apps.runtime.migration_ops import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("chrono_jobs", "0002_checks"),
        ("chrono_tenants", "0002_guards"),
    ]

    operations = [run_sql_file(__file__)]
