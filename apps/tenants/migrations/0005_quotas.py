from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chrono_tenants", "0004_weight")]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '2s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="tenant",
            name="max_running",
            field=models.IntegerField(
                blank=True,
                help_text="How many of its runs may be under way at once.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="tenant",
            name="max_starts",
            field=models.IntegerField(
                blank=True,
                help_text="How many of its runs may begin in any second.",
                null=True,
            ),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(("max_running__gte", 1), ("max_starts__gte", 1)),
                name="chrono_tenant_quotas",
            ),
        ),
    ]
