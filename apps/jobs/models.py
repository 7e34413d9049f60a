"""The tables of definitions."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from apps.tenants.scoping import TenantScoped


class Job(TenantScoped):
    """One job of one tenant, named by its key; deleted softly."""

    id = models.UUIDField(primary_key=True)
    tenant = models.IntegerField(default=1)
    key = models.CharField(max_length=200)
    name = models.CharField(max_length=200, blank=True)
    tags = ArrayField(models.TextField(), default=list, db_default=[], blank=True)
    part = models.SmallIntegerField()
    version = models.IntegerField(
        default=1,
        help_text="Planning version: every change of the plan takes the next.",
    )
    revision = models.IntegerField(default=1, help_text="The revision in force.")
    epoch = models.BigIntegerField(
        default=0, help_text="The partition's epoch as of the last change."
    )
    activated_at = models.DateTimeField(
        help_text="The plan in force decides strictly after this instant."
    )
    changes = models.IntegerField(
        default=1, db_default=1, help_text="Rises with every change of the job."
    )
    paused = models.BooleanField(default=False)
    pause_note = models.TextField(blank=True)
    paused_until = models.DateTimeField(null=True, blank=True)
    paused_by = models.CharField(max_length=200, blank=True, default="", db_default="")
    deleted_at = models.DateTimeField(null=True, blank=True)
    remaining_runs = models.IntegerField(
        null=True, blank=True, help_text="Runs left as of the last change; else any."
    )
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "chrono_job"
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "key"],
                condition=models.Q(deleted_at__isnull=True),
                name="chrono_job_key",
            ),
            models.CheckConstraint(
                condition=models.Q(part__range=(0, 63)), name="chrono_job_part"
            ),
        ]
        indexes = [
            # Serves the leaders' delta: the jobs of a partition changed since an epoch.
            models.Index(fields=["part", "epoch"], name="chrono_job_epoch"),
            # Finds the pauses that are over; hardly any job is in it.
            models.Index(
                fields=["paused_until"],
                condition=models.Q(paused=True, paused_until__isnull=False),
                name="chrono_job_resume",
            ),
            # Serve the lists of a tenant's jobs; what is deleted is in nobody's way.
            models.Index(
                fields=["tenant", "id"],
                condition=models.Q(deleted_at__isnull=True),
                name="chrono_job_living",
            ),
            models.Index(
                fields=["tenant", "id"],
                condition=models.Q(deleted_at__isnull=False),
                name="chrono_job_deleted",
            ),
        ]

    def __str__(self) -> str:
        return self.key


class JobRevision(TenantScoped):
    """A definition as it once was; rows are never updated."""

    tenant_path = "job__tenant"

    job = models.ForeignKey(Job, on_delete=models.CASCADE, db_index=False)
    revision = models.IntegerField()
    schedule = models.JSONField()
    jitter_window = models.BigIntegerField(help_text="Milliseconds.")
    overlap_policy = models.CharField(max_length=20)
    queue = models.CharField(max_length=64)
    priority = models.SmallIntegerField()
    target = models.JSONField()
    payload = models.JSONField(null=True)
    retry_policy = models.JSONField()
    policy = models.JSONField(
        default=dict, db_default={}, help_text="Further policies that are not default."
    )
    created_at = models.DateTimeField()

    class Meta:
        db_table = "chrono_job_revision"
        constraints = [
            models.UniqueConstraint(
                fields=["job", "revision"], name="chrono_job_revision_key"
            ),
        ]
        indexes = [
            # Finds the jobs that must succeed now and then; hardly any is one.
            models.Index(
                fields=["job", "revision"],
                condition=models.Q(policy__has_key="max_time_since_success"),
                name="chrono_job_revision_watched",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} r{self.revision}"
