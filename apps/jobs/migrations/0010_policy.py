from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chrono_jobs", "0009_tags_validated")]

    operations = [
        # Beside old code: what it writes has the default policies.
        migrations.RunSQL("SET LOCAL lock_timeout = '2s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="jobrevision",
            name="policy",
            field=models.JSONField(
                db_default={},
                default=dict,
                help_text="Further policies that are not default.",
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="remaining_runs",
            field=models.IntegerField(
                blank=True,
                help_text="Runs left as of the last change; else any.",
                null=True,
            ),
        ),
    ]
