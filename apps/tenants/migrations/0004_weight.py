from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chrono_tenants", "0003_timezone")]

    operations = [
        # Beside old code, which makes tenants without it: the database has a default.
        migrations.RunSQL("SET LOCAL lock_timeout = '2s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="tenant",
            name="weight",
            field=models.FloatField(
                db_default=1.0,
                default=1.0,
                help_text="The share of the workers beside other tenants who want them, too.",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(("weight__gte", 0.1), ("weight__lte", 10)),
                name="chrono_tenant_weight",
            ),
        ),
    ]
