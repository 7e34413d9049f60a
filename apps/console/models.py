"""What the admin lists beside the models of other rooms: their tables, never written.

Each has one primary key, as the admin needs it. The real keys have the partition in
them too; ids of runs are unique all the same.
"""

from typing import override

from django.contrib.postgres.fields import ArrayField
from django.db import models

from apps.tenants.scoping import TenantScoped


class Run(TenantScoped):
    """A run; what is still under way lies in other tables than this one."""

    id = models.UUIDField(primary_key=True)
    tenant = models.IntegerField()

    class Meta:
        managed = False
        db_table = "chrono_run"

    @override
    def __str__(self) -> str:
        return str(self.pk)


class Occurrence(TenantScoped):
    """One decided instant of a job's schedule, or a stretch of skipped ones."""

    tenant_path = "job_id__tenant"

    id = models.UUIDField(primary_key=True, db_column="run_id")

    class Meta:
        managed = False
        db_table = "chrono_occurrence"

    @override
    def __str__(self) -> str:
        return str(self.pk)


class DeadLetter(TenantScoped):
    """A run that used up its attempts, with its payload and its errors."""

    id = models.UUIDField(primary_key=True, db_column="run_id")
    tenant = models.IntegerField()
    job_id = models.UUIDField()
    revision = models.IntegerField()
    queue = models.TextField()
    reason = models.SmallIntegerField()
    attempt = models.SmallIntegerField()
    died_at = models.DateTimeField()
    payload = models.JSONField(null=True)
    errors = models.JSONField()

    class Meta:
        managed = False
        db_table = "chrono_dead_letter"

    @override
    def __str__(self) -> str:
        return str(self.pk)


class Target(TenantScoped):
    """A task or a server that failed, or that somebody looked after."""

    id = models.BigIntegerField(primary_key=True)
    tenant = models.IntegerField()
    name = models.TextField()
    state = models.SmallIntegerField()
    failures = models.IntegerField()
    changed_at = models.DateTimeField()
    probe_at = models.DateTimeField(null=True)
    granted = models.BigIntegerField()
    refused = models.BigIntegerField()
    changed_by = models.TextField()
    note = models.TextField()

    class Meta:
        managed = False
        db_table = "chrono_target"

    @override
    def __str__(self) -> str:
        return self.name


class QueuePause(TenantScoped):
    """A queue of which a tenant's runs are held."""

    id = models.BigIntegerField(primary_key=True)
    tenant = models.IntegerField()
    queue = models.TextField()
    paused_at = models.DateTimeField()
    paused_by = models.TextField()
    note = models.TextField()

    class Meta:
        managed = False
        db_table = "chrono_queue_pause"
        verbose_name = "paused queue"

    @override
    def __str__(self) -> str:
        return self.queue


class Worker(models.Model):
    """One start of a worker process."""

    id = models.UUIDField(primary_key=True)
    beat_at = models.DateTimeField()
    started_at = models.DateTimeField()
    stopped_at = models.DateTimeField(null=True)
    dead = models.BooleanField()
    host = models.TextField()
    pid = models.IntegerField()
    concurrency = models.IntegerField()
    queues = ArrayField(models.TextField())

    class Meta:
        managed = False
        db_table = "chrono_worker"

    @override
    def __str__(self) -> str:
        return f"{self.host} {self.pid}"


class Partition(models.Model):
    """One of the 64 shares of the jobs, and who fires it."""

    id = models.SmallIntegerField(primary_key=True)
    fence = models.BigIntegerField()
    epoch = models.BigIntegerField()
    owner = models.TextField()
    taken_at = models.DateTimeField(null=True)

    class Meta:
        managed = False
        db_table = "chrono_partition"

    @override
    def __str__(self) -> str:
        return str(self.pk)
