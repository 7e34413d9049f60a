"""A scope shows one tenant's rows and writes no other's."""

import uuid

import psycopg
import pytest

from apps.jobs.models import Job, JobRevision
from apps.tenants.models import ApiKey, Tenant
from apps.tenants.scoping import OtherTenant
from tests.support.pg import Connection
from tests.support.seed import make_job
from tests.tenants.conftest import Keyring


@pytest.fixture
def two(keyring: Keyring, other_tenant: int) -> tuple[str, str]:
    """A key of the default tenant, and one of the other."""
    mine, theirs = keyring.issue("mine"), keyring.issue("theirs", tenant=other_tenant)
    return mine.key.id, theirs.key.id


def test_a_scope_shows_one_tenant_s_rows(two, other_tenant):
    mine, theirs = two
    assert [key.id for key in ApiKey.scoped(1)] == [mine]
    assert [key.id for key in ApiKey.scoped(other_tenant)] == [theirs]
    assert ApiKey.scoped(1).filter(pk=theirs).first() is None
    assert list(ApiKey.scoped(99)) == []


def test_a_scope_cannot_be_widened_by_what_follows(two):
    mine, _ = two
    rows = ApiKey.scoped(1)
    for wider in (
        rows.all(),
        rows.order_by("id"),
        rows.filter(name__in=["mine", "theirs"]),
        rows.exclude(name="x").select_related("tenant"),
    ):
        assert [key.id for key in wider] == [mine]
        assert wider.tenant_in_scope == 1


def row(name: str, **fields: object) -> dict[str, object]:
    return {
        "id": name,
        "name": name,
        "digest": bytes(32),
        "scopes": ["read"],
        "created_at": "2026-11-29T12:00:00Z",
        "created_by": "tests",
        **fields,
    }


def test_what_is_created_in_a_scope_is_the_tenant_s(other_tenant):
    rows = ApiKey.scoped(other_tenant)
    assert rows.create(**row("aaaaaaaa")).tenant_id == other_tenant
    assert rows.filter(name="x").create(**row("bbbbbbbb")).tenant_id == other_tenant
    named = Tenant.objects.get(pk=other_tenant)
    assert rows.create(**row("cccccccc", tenant=named)).tenant_id == other_tenant
    made, _ = rows.get_or_create(id="dddddddd", defaults=row("dddddddd"))
    assert made.tenant_id == other_tenant


def test_nothing_is_created_for_another_tenant(other_tenant):
    rows, default = ApiKey.scoped(other_tenant), Tenant.objects.get(pk=1)
    for wrong in ({"tenant": default}, {"tenant_id": 1}):
        with pytest.raises(OtherTenant):
            rows.create(**row("aaaaaaaa", **wrong))
    with pytest.raises(OtherTenant):
        rows.bulk_create(
            [
                ApiKey(**row("aaaaaaaa", tenant_id=other_tenant)),
                ApiKey(**row("bbbbbbbb", tenant_id=1)),
            ]
        )
    assert ApiKey.objects.count() == 0
    assert (
        len(rows.bulk_create([ApiKey(**row("aaaaaaaa", tenant_id=other_tenant))])) == 1
    )


def test_no_row_changes_hands(two, other_tenant):
    for field in ("tenant", "tenant_id"):
        with pytest.raises(OtherTenant):
            ApiKey.scoped(1).update(**{field: other_tenant})
    assert ApiKey.scoped(1).update(name="renamed") == 1
    assert set(ApiKey.objects.values_list("name", flat=True)) == {"renamed", "theirs"}


def test_another_tenant_s_row_is_not_found_by_delete_or_update(two, other_tenant):
    mine, _ = two
    rows = ApiKey.scoped(other_tenant).filter(pk=mine)
    assert rows.update(name="x") == 0
    assert rows.delete() == (0, {})


def test_a_row_is_scoped_along_what_it_hangs_on(second_connection: Connection):
    job = make_job(second_connection, target={"kind": "task", "name": "x"})
    assert [found.id for found in Job.scoped(1)] == [job.id]
    assert [found.job_id for found in JobRevision.scoped(1)] == [job.id]
    assert not JobRevision.scoped(2).exists()
    with pytest.raises(OtherTenant, match="no tenant of its own"):
        JobRevision.scoped(1).create(job_id=uuid.uuid4(), revision=2)


def test_a_job_of_no_tenant_cannot_be(second_connection: Connection):
    make_job(second_connection, target={"kind": "task", "name": "x"})
    [(validated,)] = second_connection.execute(
        "SELECT convalidated FROM pg_constraint WHERE conname = 'chrono_job_tenant'"
    ).fetchall()
    assert validated
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="chrono_job_tenant"):
        second_connection.execute("UPDATE chrono_job SET tenant = 99")
