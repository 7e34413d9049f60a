from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chrono_tenants", "0005_quotas")]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '2s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="tenant",
            name="max_jobs",
            field=models.IntegerField(
                blank=True,
                help_text="How many jobs that are not deleted it may have.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="tenant",
            name="max_payload_bytes",
            field=models.IntegerField(
                blank=True,
                help_text="How many bytes of JSON the payload of a job or run may have.",
                null=True,
            ),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(("max_jobs__gte", 1), ("max_payload_bytes__gte", 1)),
                name="chrono_tenant_job_quotas",
            ),
        ),
    ]
