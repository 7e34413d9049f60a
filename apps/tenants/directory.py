"""Which tenants there are."""

from collections.abc import Mapping
from dataclasses import asdict

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
from chrono.rules.fairness import Share
from chrono.rules.instants import from_millis

LEAST_WEIGHT = 0.1
MOST_WEIGHT = 10.0
MOST_RUNS = 1_000_000


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
    if not actor.sees(tenant):
        raise TenantNotFound
    return change_tenant(tenant, {"timezone": timezone}, actor=actor, reason=reason)


def change_share(tenant: int, share: Share, *, actor: Actor, reason: str = "") -> bool:
    """Set a tenant's share beside others, and its quotas; return whether they changed.

    Runs that come due half a minute later go by it. Raises Forbidden, TenantNotFound,
    BadValue.
    """
    actor.require(Scope.ADMIN)
    if actor.tenant is not None:
        raise Forbidden("Whoever belongs to a tenant does not set its share.")
    if not LEAST_WEIGHT <= share.weight <= MOST_WEIGHT:
        raise BadValue(
            f"A weight is between {LEAST_WEIGHT} and {MOST_WEIGHT}.", field="weight"
        )
    for name in ("max_running", "max_starts"):
        check_quota(getattr(share, name), most=MOST_RUNS, field=name)
    return change_tenant(tenant, asdict(share), actor=actor, reason=reason)


def check_quota(quota: int | None, *, most: int, field: str) -> None:
    """Raise BadValue for what is no quota; None is one: any number."""
    if quota is not None and not (type(quota) is int and 1 <= quota <= most):
        raise BadValue(f"A quota is between 1 and {most:,}, or none.", field=field)


def change_tenant(
    tenant: int, values: Mapping[str, object], *, actor: Actor, reason: str
) -> bool:
    """Set fields of a tenant and write down what was changed; return whether any.

    For who has asked whether the actor may, and checked the values. Raises
    TenantNotFound.
    """
    with transaction.atomic():
        found = Tenant.objects.select_for_update(no_key=True).filter(pk=tenant).first()
        if found is None:
            raise TenantNotFound
        before = {
            name: was
            for name, value in values.items()
            if (was := getattr(found, name)) != value
        }
        if not before:
            return False
        after = {name: values[name] for name in before}
        for name, value in after.items():
            setattr(found, name, value)
        found.save(update_fields=[*after])
        event = Event(
            tenant=tenant,
            action="tenant.change",
            object_kind="tenant",
            object_id=str(tenant),
            before=before,
            after=after,
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
