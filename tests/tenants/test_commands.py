"""chronokey and chronosetup: a secret is said once, and alone on its line."""

import re
from concurrent.futures import Future
from io import StringIO
from typing import Any

import django.db
import pytest
from django.contrib.auth import authenticate, get_user_model
from django.core.management import CommandError, call_command

from apps.tenants import keys
from apps.tenants.errors import KeyRevoked
from tests.support import pg
from tests.tenants.conftest import Keyring

DAY_MS = 86_400_000


def run(*args: str) -> tuple[str, str]:
    """Run a command; return what it wrote to its output and beside it."""
    out, err = StringIO(), StringIO()
    call_command(*args, stdout=out, stderr=err, no_color=True)
    return out.getvalue(), err.getvalue()


def test_issue_writes_the_key_and_nothing_else_to_its_output(keyring: Keyring):
    out, err = run("chronokey", "issue", "ci", "--scopes", "read, write")
    principal = keys.verify(out.removesuffix("\n"))
    assert {str(scope) for scope in principal.scopes} == {"read", "write"}
    assert out.strip() not in err
    assert principal.key in err


def test_a_key_reads_unless_told_otherwise_and_ends_when_told(keyring: Keyring):
    out, _ = run("chronokey", "issue", "ci", "--expires", "90d")
    principal = keys.verify(out.strip())
    assert {str(scope) for scope in principal.scopes} == {"read"}
    created = keyring.value("created_at", principal.key)
    assert (
        0 <= created + 90 * DAY_MS - keyring.value("expires_at", principal.key) < 9000
    )


def test_rotate_list_and_revoke(keyring: Keyring):
    old = run("chronokey", "issue", "ci")[0].strip()
    ident = old[9:17]
    new = run("chronokey", "rotate", ident, "--reason", "yearly")[0].strip()
    assert keys.verify(old)
    assert keys.verify(new)
    assert run("chronokey", "revoke", ident, "--reason", "done")[0] == (
        f"key {ident} is revoked\n"
    )
    with pytest.raises(KeyRevoked):
        keys.verify(old)
    listed = run("chronokey", "list")[0].splitlines()
    assert [line[:8] for line in listed] == [new[9:17], ident]
    assert f"replaces {ident}" in listed[0]
    assert f"{ident} ci [read] revoked 20" in listed[1]
    assert [event[1:] for event in keyring.events()] == [
        ("command", "chronokey", "key.issue", ident, ""),
        ("command", "chronokey", "key.rotate", new[9:17], "yearly"),
        ("command", "chronokey", "key.revoke", ident, "done"),
    ]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--tenant", "acme", "list"], "There is no tenant 'acme'."),
        (["issue", "ci", "--scopes", "root"], "'root' is no scope"),
        (["issue", "ci", "--expires", "soon"], "A duration is a number with a unit"),
        (["issue", "ci", "--expires", "0s"], "The instant is not in the future."),
        (["issue", " "], "A name is one line"),
        (["revoke", "aaaaaaaa"], "This tenant has no API key of this id."),
        (["rotate", "aaaaaaaa"], "This tenant has no API key of this id."),
    ],
)
def test_a_mistake_is_one_line(database, args, said):
    with pytest.raises(CommandError, match=re.escape(said)):
        run("chronokey", *args)


def test_keys_of_another_tenant_are_not_listed(keyring: Keyring, other_tenant: int):
    keyring.issue("mine")
    assert run("chronokey", "--tenant", "other", "list")[0] == ""
    run("chronokey", "--tenant", "other", "issue", "theirs")
    assert " theirs [read] " in run("chronokey", "--tenant", "other", "list")[0]


def test_no_database_is_one_line():
    with pytest.raises(CommandError, match=r"^The database: connection failed"):
        run("chronokey", "list")


# chronosetup


@pytest.fixture(autouse=True)
def no_given_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DJANGO_SUPERUSER_USERNAME", raising=False)
    monkeypatch.delenv("DJANGO_SUPERUSER_PASSWORD", raising=False)


def test_setup_makes_a_login_and_a_key_and_says_both_once(keyring: Keyring):
    out, err = run("chronosetup")
    login = re.search(
        r"^admin: login (\S+), password (\S+) \(shown once\)$", out, re.MULTILINE
    )
    text = re.search(r"^key: (\S+) \(shown once\)$", out, re.MULTILINE)
    assert login
    assert text
    assert err == ""
    user = authenticate(username=login[1], password=login[2])
    assert user
    assert user.is_superuser
    principal = keys.verify(text[1])
    assert {str(s) for s in principal.scopes} == {"operate", "write", "admin"}
    assert [event[3:5] for event in keyring.events()] == [
        ("user.create", "admin"),
        ("key.issue", principal.key),
    ]
    again, _ = run("chronosetup")
    assert again.splitlines() == [
        "admin: there is a login already",
        "key: there is one already; chronokey makes more",
    ]
    assert len(keyring.events()) == 2


def test_a_given_login_is_taken_and_its_password_not_said(
    keyring: Keyring, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DJANGO_SUPERUSER_USERNAME", "ada")
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "correct horse battery")
    out, _ = run("chronosetup", "--no-key")
    assert out == "admin: login ada, with the given password\n"
    assert authenticate(username="ada", password="correct horse battery")
    assert keyring.rows("SELECT count(*) FROM chrono_api_key") == [(0,)]


def test_a_weak_given_password_makes_nothing(
    keyring: Keyring, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "1234")
    with pytest.raises(CommandError, match=r"^DJANGO_SUPERUSER_PASSWORD: .*too short"):
        run("chronosetup")
    assert keyring.rows("SELECT count(*) FROM auth_user") == [(0,)]
    assert keyring.rows("SELECT count(*) FROM chrono_api_key") == [(0,)]


def test_a_user_of_the_name_who_is_no_administrator_is_left_alone(keyring: Keyring):
    get_user_model().objects.create_user(username="admin", password="their own")
    with pytest.raises(CommandError, match="a user admin who is no administrator"):
        run("chronosetup")
    assert authenticate(username="admin", password="their own")
    assert keyring.rows("SELECT count(*) FROM chrono_api_key") == [(0,)]


def test_two_setups_at_once_make_one_login_and_one_key(
    keyring: Keyring, connect, background, second_connection
):
    holder = connect(autocommit=False)
    holder.execute("SELECT FROM chrono_tenant FOR NO KEY UPDATE")

    def set_up() -> str:
        try:
            return run("chronosetup")[0]
        finally:
            django.db.connection.close()

    both: list[Future[Any]] = [background(set_up) for _ in range(2)]
    waiting = """
        SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'
    """
    while len(pids := second_connection.execute(waiting).fetchall()) < 2:
        assert not any(one.done() for one in both)
    for (pid,) in pids:
        pg.wait_until_blocked(second_connection, pid)
    holder.rollback()
    said = "".join(one.result(timeout=20) for one in both)
    assert said.count("(shown once)") == 2
    assert said.count("already") == 2
    assert keyring.rows("SELECT count(*) FROM auth_user") == [(1,)]
    assert keyring.rows("SELECT count(*) FROM chrono_api_key") == [(1,)]
