"""What was changed last, by whoever, in all tenants."""

from django.db.models import QuerySet
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce

from apps.tenants.models import AuditEvent


def recent_events(count: int) -> list[AuditEvent]:
    """Return the last events, newest first, without what they changed."""
    # For superusers, who see all tenants.
    return list(brief(AuditEvent.objects.order_by("-id"))[:count])


def brief(rows: QuerySet[AuditEvent]) -> QuerySet[AuditEvent]:
    """Return events with the name of their object in place of what was changed."""
    name = Coalesce(KT("after__key"), KT("before__key"), KT("after__name"))
    return rows.defer("before", "after").annotate(object_name=name)
