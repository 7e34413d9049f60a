from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chrono_jobs", "0004_tenant_validated")]

    operations = [
        # Beside old code: each column has a default in the database, and the check is
        # validated by the next migration, without a lock against writers.
        migrations.RunSQL("SET LOCAL lock_timeout = '2s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="job",
            name="changes",
            field=models.IntegerField(
                db_default=1, default=1, help_text="Rises with every change of the job."
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="paused_until",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="paused_by",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=200
            ),
        ),
        migrations.RunSQL(
            "ALTER TABLE chrono_job ADD CONSTRAINT chrono_job_paused_until CHECK ("
            "paused_until >= '1970-01-01Z' AND paused_until < '9999-01-01Z') NOT VALID",
            "ALTER TABLE chrono_job DROP CONSTRAINT chrono_job_paused_until",
        ),
    ]
