from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chrono_tenants", "0002_guards")]

    operations = [
        # Beside old code, which makes tenants without it: the database has a default.
        migrations.RunSQL("SET LOCAL lock_timeout = '2s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="tenant",
            name="timezone",
            field=models.CharField(
                db_default="UTC",
                default="UTC",
                help_text="Of a new cron job that names none.",
                max_length=100,
            ),
        ),
    ]
