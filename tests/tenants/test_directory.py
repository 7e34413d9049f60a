"""Tenants are made by who belongs to none."""

import pytest

from apps.tenants import keys
from apps.tenants.directory import create_tenant, find_tenant
from apps.tenants.errors import BadName, Forbidden, TenantNameTaken, TenantNotFound
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


def test_there_is_no_tenant_but_those_made(database):
    with pytest.raises(TenantNotFound, match="'acme'"):
        find_tenant("acme")
