"""The tables of tenants, keys and audit events."""

from typing import override

from django.contrib.postgres.fields import ArrayField
from django.db import models

from apps.tenants.actor import ActorKind
from apps.tenants.scoping import TenantScoped

DEFAULT_TENANT = 1
"""The tenant that a migration makes, named ``default``."""


class Tenant(models.Model):
    """Whose jobs, keys and runs these are; rows are never deleted."""

    id = models.AutoField(primary_key=True)
    name = models.CharField(max_length=100, unique=True)
    timezone = models.CharField(
        max_length=100,
        default="UTC",
        db_default="UTC",
        help_text="Of a new cron job that names none.",
    )
    weight = models.FloatField(
        default=1.0,
        db_default=1.0,
        help_text="The share of the workers beside other tenants who want them, too.",
    )
    max_running = models.IntegerField(
        null=True,
        blank=True,
        help_text="How many of its runs may be under way at once.",
    )
    max_starts = models.IntegerField(
        null=True, blank=True, help_text="How many of its runs may begin in any second."
    )
    max_jobs = models.IntegerField(
        null=True,
        blank=True,
        help_text="How many jobs that are not deleted it may have.",
    )
    max_payload_bytes = models.IntegerField(
        null=True,
        blank=True,
        help_text="How many bytes of JSON the payload of a job or run may have.",
    )
    created_at = models.DateTimeField()

    class Meta:
        db_table = "chrono_tenant"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(weight__gte=0.1, weight__lte=10),
                name="chrono_tenant_weight",
            ),
            models.CheckConstraint(
                condition=models.Q(max_running__gte=1, max_starts__gte=1),
                name="chrono_tenant_quotas",
            ),
            models.CheckConstraint(
                condition=models.Q(max_jobs__gte=1, max_payload_bytes__gte=1),
                name="chrono_tenant_job_quotas",
            ),
        ]

    @override
    def __str__(self) -> str:
        return self.name


class ApiKey(TenantScoped):
    """A key's row: everything but the key."""

    id = models.CharField(primary_key=True, max_length=8)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=100)
    digest = models.BinaryField(
        max_length=32, editable=False, help_text="SHA-256 of the whole text."
    )
    scopes = ArrayField(models.CharField(max_length=10))
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=200)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(
        null=True, blank=True, help_text="Written at most once a minute."
    )
    replaces = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )

    class Meta:
        db_table = "chrono_api_key"
        constraints = [
            # While a key is being replaced two work, never three.
            models.UniqueConstraint(
                fields=["replaces"],
                condition=models.Q(revoked_at__isnull=True),
                name="chrono_api_key_replaces",
            ),
        ]

    @override
    def __str__(self) -> str:
        return f"{self.name} ({self.id})"


class AuditEvent(TenantScoped):
    """One change by somebody; rows are never changed or deleted."""

    id = models.UUIDField(primary_key=True)
    at = models.DateTimeField()
    # Without a constraint in the database: each event would lock its tenant's row.
    tenant = models.ForeignKey(
        Tenant,
        on_delete=models.PROTECT,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    actor = models.CharField(max_length=200)
    actor_kind = models.CharField(
        max_length=10, choices=[(kind.value, kind.value) for kind in ActorKind]
    )
    action = models.CharField(max_length=50)
    object_kind = models.CharField(max_length=30)
    object_id = models.CharField(max_length=200)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    reason = models.TextField(blank=True)
    request_id = models.CharField(max_length=200, blank=True)

    class Meta:
        db_table = "chrono_audit_event"
        indexes = [
            # Both newest first, read backward; ids sort by time.
            models.Index(fields=["tenant", "id"], name="chrono_audit_event_tenant"),
            models.Index(
                fields=["tenant", "object_kind", "object_id", "id"],
                name="chrono_audit_event_object",
            ),
        ]

    @override
    def __str__(self) -> str:
        return f"{self.action} {self.object_id}"
