"""Which tenants there are."""

from django.db import transaction

from apps.runtime import store as runtime
from apps.runtime.django_session import raw_connection
from apps.runtime.sessions import Connection
from apps.tenants import audit, store
from apps.tenants.actor import Actor, Scope
from apps.tenants.errors import Forbidden, TenantNameTaken, TenantNotFound
from apps.tenants.event import Event
from apps.tenants.keys import checked_name
from apps.tenants.models import Tenant
from chrono.rules.cron import check_zone
from chrono.rules.errors import BadValue
from chrono.rules.instants import from_millis

LEAST_WEIGHT = 0.1
MOST_WEIGHT = 10.0


def create_tenant(name: str, *, actor: Actor, reason: str = "") -> Tenant:
    """Make a tenant. Raises Forbidden to who is of one, BadName, TenantNameTaken."""
    actor.require(Scope.ADMIN)
    if actor.tenant is not None:
        raise Forbidden("Whoever belongs to a tenant makes no other.")
    name = checked_name(name)
    with transaction.atomic():
        conn = raw_connection()
        now = int(runtime.read_clock(conn))
        tenant, made = Tenant.objects.get_or_create(
            name=name, defaults={"created_at": from_millis(now)}
        )
        if not made:
            raise TenantNameTaken(f"There is a tenant {name} already.", field="name")
        event = Event(
            tenant=tenant.pk,
            action="tenant.create",
            object_kind="tenant",
            object_id=str(tenant.pk),
            after={"id": tenant.pk, "name": name},
            reason=reason,
        )
        audit.record(conn, actor=actor, events=[event], now=now)
    return tenant


def change_timezone(
    tenant: int, timezone: str, *, actor: Actor, reason: str = ""
) -> bool:
    """Set the time zone of a tenant's new cron jobs; return whether it was another.

    Jobs that are there stay where they are. Raises Forbidden, TenantNotFound,
    UnknownTimezone.
    """
    actor.require(Scope.ADMIN)
    check_zone(timezone)
    with transaction.atomic():
        rows = Tenant.objects.select_for_update(no_key=True).filter(pk=tenant)
        found = rows.first() if actor.sees(tenant) else None
        if found is None:
            raise TenantNotFound
        before = found.timezone
        if timezone == before:
            return False
        found.timezone = timezone
        found.save(update_fields=["timezone"])
        event = Event(
            tenant=tenant,
            action="tenant.change",
            object_kind="tenant",
            object_id=str(tenant),
            before={"timezone": before},
            after={"timezone": timezone},
            reason=reason,
        )
        audit.record(raw_connection(), actor=actor, events=[event])
    return True


def change_weight(
    tenant: int, weight: float, *, actor: Actor, reason: str = ""
) -> bool:
    """Set a tenant's share beside others; return whether it was another.

    Runs that come due half a minute later go by it. Raises Forbidden, TenantNotFound,
    BadValue.
    """
    actor.require(Scope.ADMIN)
    if actor.tenant is not None:
        raise Forbidden("Whoever belongs to a tenant does not set its share.")
    if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise BadValue(
            f"A weight is between {LEAST_WEIGHT} and {MOST_WEIGHT}.", field="weight"
        )
    with transaction.atomic():
        rows = Tenant.objects.select_for_update(no_key=True).filter(pk=tenant)
        found = rows.first()
        if found is None:
            raise TenantNotFound
        before = found.weight
        if weight == before:
            return False
        found.weight = weight
        found.save(update_fields=["weight"])
        event = Event(
            tenant=tenant,
            action="tenant.change",
            object_kind="tenant",
            object_id=str(tenant),
            before={"weight": before},
            after={"weight": weight},
            reason=reason,
        )
        audit.record(raw_connection(), actor=actor, events=[event])
    return True


def find_timezone(conn: Connection, *, tenant: int) -> str:
    """Return the time zone of a tenant's new cron jobs that name none.

    Raises TenantNotFound.
    """
    found = store.find_timezone(conn, tenant=tenant)
    if found is None:
        raise TenantNotFound
    return found


def find_tenant(name: str) -> Tenant:
    """Return the tenant of this name; raises TenantNotFound."""
    tenant = Tenant.objects.filter(name=name).first()
    if tenant is None:
        raise TenantNotFound(f"There is no tenant {name!r}.")
    return tenant
