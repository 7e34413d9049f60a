"""Tenants are made by who belongs to none."""

import pytest

from apps.runtime.django_session import raw_connection
from apps.tenants import keys
from apps.tenants.directory import (
    change_share,
    change_timezone,
    create_tenant,
    find_tenant,
    find_timezone,
)
from apps.tenants.errors import BadName, Forbidden, TenantNameTaken, TenantNotFound
from apps.tenants.store import list_shares
from chrono.rules.errors import BadValue, UnknownTimezone
from chrono.rules.fairness import Share
from tests.tenants.conftest import ACTOR


def test_the_first_tenant_is_there_and_the_next_has_another_number(keyring):
    assert find_tenant("default").pk == 1
    made = create_tenant("  acme  ", actor=ACTOR, reason="signed")
    assert (made.pk, made.name) == (2, "acme")
    assert find_tenant("acme").pk == 2
    assert keyring.events() == [(2, "command", "tests", "tenant.create", "2", "signed")]


def test_a_name_is_taken_once(keyring):
    create_tenant("acme", actor=ACTOR)
    with pytest.raises(TenantNameTaken):
        create_tenant("acme", actor=ACTOR)
    assert len(keyring.events()) == 1


def test_a_name_is_one_printable_line(database):
    for name in ("", " ", "a\nb", "x" * 101):
        with pytest.raises(BadName):
            create_tenant(name, actor=ACTOR)


def test_a_tenant_s_admin_makes_no_other(keyring):
    admin = keys.verify(keyring.issue(scopes=["admin"]).text).actor()
    with pytest.raises(Forbidden):
        create_tenant("acme", actor=admin)


def test_a_time_zone_is_changed_and_written_down_once(keyring):
    conn = raw_connection()
    assert find_timezone(conn, tenant=1) == "UTC"
    assert change_timezone(1, "Asia/Tokyo", actor=ACTOR, reason="moved")
    assert not change_timezone(1, "Asia/Tokyo", actor=ACTOR)
    assert find_timezone(conn, tenant=1) == "Asia/Tokyo"
    assert keyring.events() == [(1, "command", "tests", "tenant.change", "1", "moved")]


@pytest.mark.parametrize("zone", ["", "Mars/Base", "utc", "Asia/Tokyo\x00", "+02:00"])
def test_a_time_zone_is_one_of_the_database(keyring, zone):
    with pytest.raises(UnknownTimezone):
        change_timezone(1, zone, actor=ACTOR)
    assert keyring.events() == []


def test_only_who_sees_a_tenant_changes_its_zone(keyring):
    other = create_tenant("acme", actor=ACTOR)
    admin = keys.verify(keyring.issue(scopes=["admin"]).text).actor()
    assert change_timezone(1, "Asia/Tokyo", actor=admin)
    for tenant in (other.pk, 77):
        with pytest.raises(TenantNotFound):
            change_timezone(tenant, "Asia/Tokyo", actor=admin)
    writer = keys.verify(keyring.issue(scopes=["write"]).text).actor()
    with pytest.raises(Forbidden):
        change_timezone(1, "UTC", actor=writer)
    with pytest.raises(TenantNotFound):
        find_timezone(raw_connection(), tenant=77)


def test_old_code_makes_tenants_without_a_zone(database):
    raw_connection().execute(
        "INSERT INTO chrono_tenant (name, created_at) VALUES ('old', now())"
    )
    assert find_tenant("old").timezone == "UTC"


def test_there_is_no_tenant_but_those_made(database):
    with pytest.raises(TenantNotFound, match="'acme'"):
        find_tenant("acme")


def test_a_share_is_changed_and_written_down_once(keyring):
    conn = raw_connection()
    assert list_shares(conn) == {}
    share = Share(weight=2.5, max_running=7)
    assert change_share(1, share, actor=ACTOR, reason="they pay for it")
    assert not change_share(1, share, actor=ACTOR)
    assert list_shares(conn) == {1: share}
    [event] = keyring.events()
    assert event[-1] == "they pay for it"
    assert change_share(1, Share(max_starts=3), actor=ACTOR)
    assert list_shares(conn) == {1: Share(max_starts=3)}


@pytest.mark.parametrize(
    "share",
    [
        *({"weight": weight} for weight in (0.0, 0.09, 10.1, -1.0, float("nan"))),
        {"max_running": 0},
        {"max_starts": -1},
        {"max_running": 1_000_001},
    ],
)
def test_a_share_has_bounds(keyring, share):
    with pytest.raises(BadValue) as refused:
        change_share(1, Share(**share), actor=ACTOR)
    assert [refused.value.field] == [*share]
    assert list_shares(raw_connection()) == {}


def test_no_tenant_sets_its_own_share(keyring):
    admin = keys.verify(keyring.issue(scopes=["admin"]).text).actor()
    with pytest.raises(Forbidden):
        change_share(1, Share(weight=5.0), actor=admin)
    with pytest.raises(TenantNotFound):
        change_share(77, Share(weight=5.0), actor=ACTOR)
