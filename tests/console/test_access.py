"""Keys, tenants, people and the audit."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from apps.tenants import keys
from apps.tenants.errors import KeyRevoked
from tests.console.forms import fields_of

ADD = "admin:chrono_tenants_apikey_add"
KEYS = "admin:chrono_tenants_apikey"
TEXT = re.compile(r"chr_live_[0-9A-Za-z]{8}_[0-9A-Za-z]{38}")


def audited(conn):
    """Return (action, actor, reason) of everything, first to last."""
    return conn.execute(
        "SELECT action, actor, reason FROM chrono_audit_event ORDER BY id"
    ).fetchall()


def issue(client, **changes):
    form = fields_of(client.get(reverse(ADD)).content.decode())
    fields = {**form, "name": "deploy", "scopes": ["read", "write"], **changes}
    return client.post(reverse(ADD), fields)


def test_a_key_s_text_is_shown_once_and_opens(client, conn):
    answer = issue(client, reason="for the pipeline")
    assert answer.status_code == 200
    assert "no-store" in answer.headers["Cache-Control"]
    [text] = set(TEXT.findall(answer.content.decode()))
    principal = keys.verify(text)
    assert principal.name == "deploy"
    assert {scope.value for scope in principal.scopes} == {"read", "write"}
    assert audited(conn) == [("key.issue", "ada", "for the pipeline")]
    for address in (
        reverse(f"{KEYS}_changelist"),
        reverse(f"{KEYS}_change", args=[principal.key]),
        reverse("admin:chrono_tenants_auditevent_changelist"),
        reverse("admin:index"),
    ):
        shown = client.get(address).content.decode()
        assert text[18:] not in shown
        assert "deploy" in shown or "key.issue" in shown


def test_a_rotated_key_goes_on_until_it_is_revoked(client, conn):
    [old] = set(TEXT.findall(issue(client).content.decode()))
    ident = keys.verify(old).key
    rotate = reverse(f"{KEYS}_rotate", args=[ident])
    assert client.get(rotate).status_code == 200
    [new] = set(TEXT.findall(client.post(rotate, {}).content.decode()))
    assert keys.verify(old).key != keys.verify(new).key
    again = client.post(rotate, {})
    assert again.status_code == 422
    assert "successor already" in again.content.decode()
    revoke = reverse(f"{KEYS}_revoke", args=[ident])
    assert client.get(revoke).status_code == 200
    assert keys.verify(old)
    done = client.post(revoke, {"reason": "it leaked"})
    assert done.status_code == 302
    with pytest.raises(KeyRevoked):
        keys.verify(old)
    assert keys.verify(new)
    assert [event[0] for event in audited(conn)] == [
        "key.issue",
        "key.rotate",
        "key.revoke",
    ]
    assert audited(conn)[-1] == ("key.revoke", "ada", "it leaked")
    shown = client.get(done.headers["Location"]).content.decode()
    assert "revoked" in shown
    assert "Rotate…" not in shown


def test_what_makes_no_key_is_said_beside_its_field(client, conn):
    for changes, field in (
        ({"name": "a\nb"}, "name"),
        ({"name": ""}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes"),
        ({"expires_at": "2001-01-01T00:00"}, "expires_at"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"tenant": "99"}, "tenant"),
    ):
        answer = issue(client, **changes)
        assert answer.status_code == 422, changes
        assert f'id="id_{field}_error"' in answer.content.decode(), changes
    assert audited(conn) == []


def test_a_tenant_is_made_once(client, conn):
    address = reverse("admin:chrono_tenants_tenant_add")
    assert client.post(address, {"name": "Globex", "reason": "new"}).status_code == 302
    assert client.post(address, {"name": "Globex"}).status_code == 422
    listed = client.get(reverse("admin:chrono_tenants_tenant_changelist"))
    assert "Globex" in listed.content.decode()
    assert audited(conn) == [("tenant.create", "ada", "new")]


def test_a_tenant_s_share_is_changed_with_a_reason(client, conn):
    address = reverse("admin:chrono_tenants_tenant_change", args=[1])
    assert fields_of(client.get(address).content.decode())["weight"] == "1.0"
    sent = {"timezone": "UTC", "weight": "2.5", "max_running": "5", "reason": "pays"}
    listed = client.post(address, sent, follow=True).content.decode()
    assert "The weight is now 2.5, at most 5 runs at once." in listed
    assert conn.execute(
        "SELECT weight, max_running, max_starts FROM chrono_tenant"
    ).fetchall() == [(2.5, 5, None)]
    assert fields_of(client.get(address).content.decode())["max_running"] == "5"
    for wrong in ({"weight": "11"}, {"max_running": "0"}, {"max_starts": "1.5"}):
        assert client.post(address, {**sent, **wrong}).status_code == 422


def test_a_tenant_s_quotas_of_jobs_and_payloads_are_changed(client, conn):
    address = reverse("admin:chrono_tenants_tenant_change", args=[1])
    sent = {"timezone": "UTC", "weight": "1", "max_jobs": "3", "reason": "pays"}
    listed = client.post(address, sent, follow=True).content.decode()
    assert "The weight is now 1, at most 3 jobs." in listed
    both = {**sent, "max_payload_bytes": "2048", "max_starts": "5"}
    listed = client.post(address, both, follow=True).content.decode()
    assert "at most 5 starts a second, 3 jobs and 2,048 bytes of payload" in listed
    assert conn.execute(
        "SELECT max_jobs, max_payload_bytes FROM chrono_tenant"
    ).fetchall() == [(3, 2048)]
    for wrong in ({"max_jobs": "0"}, {"max_payload_bytes": "262145"}):
        assert client.post(address, {**sent, **wrong}).status_code == 422
    listed = client.post(address, {**sent, "max_jobs": ""}, follow=True)
    assert "no quotas" in listed.content.decode()
    assert audited(conn) == [("tenant.change", "ada", "pays")] * 5


def test_a_tenant_s_time_zone_is_changed_with_a_reason(client, conn):
    address = reverse("admin:chrono_tenants_tenant_change", args=[1])
    assert fields_of(client.get(address).content.decode())["timezone"] == "UTC"
    sent = {"timezone": "Europe/Berlin", "weight": "1", "reason": "we moved"}
    listed = client.post(address, sent, follow=True).content.decode()
    assert "is now Europe/Berlin" in listed
    assert address in listed
    again = client.post(address, sent, follow=True).content.decode()
    assert "Nothing was changed." in again
    assert conn.execute(
        "SELECT actor, reason, before, after FROM chrono_audit_event "
        "WHERE action = 'tenant.change'"
    ).fetchall() == [
        ("ada", "we moved", {"timezone": "UTC"}, {"timezone": "Europe/Berlin"})
    ]
    for zone in ("", "Mars/Base", "../UTC", "europe/berlin ", "CEST", "a\x00b"):
        answer = client.post(address, {**sent, "timezone": zone})
        assert answer.status_code == 422, zone
        assert list(answer.context_data["fieldsets"].form.errors) == ["timezone"], zone
    assert conn.execute("SELECT timezone FROM chrono_tenant").fetchall() == [
        ("Europe/Berlin",)
    ]
    for nobody in ("0", "77", "x", "9" * 40):
        address = reverse("admin:chrono_tenants_tenant_change", args=[nobody])
        assert client.get(address).status_code == 404


def test_changes_of_people_are_in_the_audit_without_passwords(client, conn):
    add = reverse("admin:auth_user_add")
    fields = fields_of(client.get(add).content.decode())
    fields |= {
        "username": "grace",
        "password1": "hopper-1906-navy",
        "password2": "hopper-1906-navy",
    }
    assert client.post(add, fields).status_code == 302
    grace = User.objects.get(username="grace")
    change = reverse("admin:auth_user_change", args=[grace.pk])
    fields = fields_of(client.get(change).content.decode())
    fields |= {"is_superuser": "on", "is_staff": "on", "is_active": "on"}
    assert client.post(change, fields).status_code == 302
    assert [event[:2] for event in audited(conn)] == [
        ("user.create", "ada"),
        ("user.change", "ada"),
    ]
    [stored] = conn.execute(
        "SELECT string_agg(after::text, '') FROM chrono_audit_event"
    )
    assert '"is_superuser": true' in stored[0]
    assert "hopper" not in stored[0]
    delete = reverse("admin:auth_user_delete", args=[grace.pk])
    assert client.get(delete).status_code == 403
    history = client.get(reverse("admin:auth_user_history", args=[grace.pk]))
    told = client.get(history.headers["Location"]).context_data["cl"].result_list
    assert [event.action for event in told] == ["user.change", "user.create"]


def test_the_audit_is_found_by_who_what_and_which(client, conn, make_job):
    seen = make_job()
    pause = reverse("admin:chrono_jobs_job_pause", args=[seen.job])
    client.post(pause, {"note": "away", "reason": "storm"})
    issue(client)
    address = reverse("admin:chrono_tenants_auditevent_changelist")

    def found(query):
        listing = client.get(f"{address}?{query}").context_data["cl"]
        assert not listing.trouble
        return [event.action for event in listing.result_list]

    assert found("") == ["key.issue", "job.pause", "job.create"]
    assert found("actor=ada") == ["key.issue", "job.pause"]
    assert found("kind=command") == ["job.create"]
    assert found("action=job.") == ["job.pause", "job.create"]
    assert found("of=key") == ["key.issue"]
    assert found(f"of=job&object={seen.job}") == ["job.pause", "job.create"]
    assert found("tenant=2") == []
    [event] = conn.execute(
        "SELECT id FROM chrono_audit_event WHERE action = 'job.pause'"
    ).fetchone()
    page = client.get(reverse("admin:chrono_tenants_auditevent_change", args=[event]))
    text = page.content.decode()
    rows = {
        one.path: (one.before, one.after) for one in page.context_data["differences"]
    }
    assert rows["paused"] == ("false", "true")
    assert rows["pause_note"] == ("", "away")
    assert "schedule" not in rows
    assert "cron" not in rows
    assert "storm" in text
    assert client.post(page.wsgi_request.path, {"reason": "x"}).status_code == 200
    assert len(audited(conn)) == 3


def test_half_an_hour_ends_a_session(settings_of_cookies):
    assert settings_of_cookies["max-age"] == 1800
    assert settings_of_cookies["httponly"]
    assert settings_of_cookies["samesite"] == "Lax"


@pytest.fixture
def settings_of_cookies(person):
    client = Client()
    login = reverse("admin:login")
    client.get(login)
    sent = {"username": "ada", "password": "correct-horse", "next": "/admin/"}
    assert client.post(login, sent).status_code == 302
    # The cookie itself ends with the browser; the session's row ends after this.
    cookie = client.cookies["sessionid"]
    age = client.session.get_expiry_age()
    return {**{name: cookie[name] for name in ("httponly", "samesite")}, "max-age": age}
