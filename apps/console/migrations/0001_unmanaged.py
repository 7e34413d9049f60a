import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="DeadLetter",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        db_column="run_id", primary_key=True, serialize=False
                    ),
                ),
                ("tenant", models.IntegerField()),
                ("job_id", models.UUIDField()),
                ("revision", models.IntegerField()),
                ("queue", models.TextField()),
                ("reason", models.SmallIntegerField()),
                ("attempt", models.SmallIntegerField()),
                ("died_at", models.DateTimeField()),
                ("payload", models.JSONField(null=True)),
                ("errors", models.JSONField()),
            ],
            options={
                "db_table": "chrono_dead_letter",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Occurrence",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        db_column="run_id", primary_key=True, serialize=False
                    ),
                ),
            ],
            options={
                "db_table": "chrono_occurrence",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Partition",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("fence", models.BigIntegerField()),
                ("epoch", models.BigIntegerField()),
                ("owner", models.TextField()),
                ("taken_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "chrono_partition",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Run",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("tenant", models.IntegerField()),
            ],
            options={
                "db_table": "chrono_run",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("beat_at", models.DateTimeField()),
                ("started_at", models.DateTimeField()),
                ("stopped_at", models.DateTimeField(null=True)),
                ("dead", models.BooleanField()),
                ("host", models.TextField()),
                ("pid", models.IntegerField()),
                ("concurrency", models.IntegerField()),
                (
                    "queues",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField()
                    ),
                ),
            ],
            options={
                "db_table": "chrono_worker",
                "managed": False,
            },
        ),
    ]
