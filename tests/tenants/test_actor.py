"""What a scope contains, and whose objects exist for whom."""

import pytest

from apps.tenants.actor import (
    ALL_SCOPES,
    Actor,
    ActorKind,
    Scope,
    parse_scopes,
)
from apps.tenants.errors import Forbidden, UnknownScope


def holder(*scopes: Scope, tenant: int | None = 1) -> Actor:
    return Actor(kind=ActorKind.KEY, name="k", tenant=tenant, scopes=frozenset(scopes))


@pytest.mark.parametrize(
    ("held", "allowed"),
    [
        (Scope.READ, {"read"}),
        (Scope.OPERATE, {"read", "operate"}),
        (Scope.WRITE, {"read", "write"}),
        (Scope.ADMIN, {"read", "operate", "write", "admin"}),
        (Scope.WORKER, {"worker"}),
    ],
)
def test_what_a_scope_contains(held, allowed):
    actor = holder(held)
    assert {str(scope) for scope in Scope if actor.may(scope)} == allowed
    for scope in Scope:
        if scope in allowed:
            actor.require(scope)
        else:
            with pytest.raises(Forbidden, match=f"needs the scope {scope}; held: "):
                actor.require(scope)


def test_scopes_add_up_and_none_is_none():
    both = holder(Scope.OPERATE, Scope.WORKER)
    assert [s for s in Scope if both.may(s)] == [
        Scope.READ,
        Scope.OPERATE,
        Scope.WORKER,
    ]
    with pytest.raises(Forbidden, match="held: none"):
        holder().require(Scope.READ)


@pytest.mark.parametrize(
    ("actor", "kind"),
    [
        (Actor.system("upkeep"), "system"),
        (Actor.command("chronoapply"), "command"),
        (Actor.user("ada", request_id="r"), "user"),
    ],
)
def test_who_is_of_no_tenant_may_everything_everywhere(actor, kind):
    assert actor.kind == kind
    assert actor.scopes == ALL_SCOPES
    assert actor.sees(1)
    assert actor.sees(7)


def test_who_is_of_a_tenant_sees_that_one_alone():
    actor = holder(Scope.ADMIN, tenant=7)
    assert actor.sees(7)
    assert not actor.sees(1)


def test_scopes_are_parsed_into_their_order():
    assert parse_scopes(["write", "read", "write"]) == (Scope.READ, Scope.WRITE)
    with pytest.raises(UnknownScope, match="'root' is no scope: choose from read, "):
        parse_scopes(["read", "root"])
    with pytest.raises(UnknownScope, match="No scope is named"):
        parse_scopes([])
