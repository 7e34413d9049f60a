"""After an update of the zone data: planned anew, fired once, at the right hour.

The update is played by timers that lie an hour off, as if they had been planned by
other rules.
"""

import io

import pytest
from django.core.management import CommandError, call_command

from apps.jobs import replanning
from apps.jobs.commands import (
    create_job,
    delete_job,
    patch_job,
    pause_job,
    replan_jobs,
    skip_next,
)
from apps.jobs.planning import moved_by_zone
from apps.jobs.replanning import replan_moved
from apps.runtime.sessions import Connection
from apps.tenants.actor import Actor, ActorKind, Scope
from apps.tenants.errors import Forbidden
from chrono.rules.instants import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    format_instant,
    parse_instant,
)
from chrono.rules.schedule import CronSchedule, Interval
from chrono.rules.states import Reason
from chrono.rules.zones import data_version
from tests.scheduler.conftest import NOON
from tests.support.definitions import definition

SIX = parse_instant("2055-03-01T17:00:00Z")
"""18:00 in Berlin, on the leader's day."""
DAILY = {"cron": "0 18 * * *", "timezone": "Europe/Berlin", "jitter_window": "0s"}


def shift(conn: Connection, hours: int) -> None:
    """Have every planned timer lie some hours off."""
    for table in ("chrono_timer", "chrono_timer_far"):
        conn.execute(
            f"UPDATE {table} SET due_at = due_at + %(h)s * interval '1 hour', "
            "scheduled_for = scheduled_for + %(h)s * interval '1 hour'",
            {"h": hours},
        )


def decisions(conn: Connection) -> list[tuple[str, int | None]]:
    """Return each decided instant with the reason why it has no run."""
    rows = conn.execute(
        "SELECT (extract(epoch FROM scheduled_for) * 1000)::bigint, reason "
        "FROM chrono_occurrence ORDER BY scheduled_for"
    )
    return [(format_instant(moment), reason) for moment, reason in rows.fetchall()]


def planned(ledger, job):
    """Return when a job's one timer in force is due, and its version."""
    [(_, version, _, scheduled_for, due_at, _, _)] = ledger.live(job)
    assert scheduled_for == due_at
    return scheduled_for, version


@pytest.mark.parametrize("hours", [-1, 1])
def test_a40_a_run_comes_once_and_at_the_new_hour(leader, hours):
    leader.create("daily", **DAILY)
    shift(leader.conn, hours)
    leader.step()
    assert replan_moved(now=NOON) == {"Europe/Berlin": 1}
    leader.jump_to(NOON + DAY)
    assert decisions(leader.conn) == [(format_instant(SIX), None)]
    # By then the timer of the next day was planned by the leader's own rules.
    assert replan_moved(now=leader.clock.moment) == {}


def test_without_it_the_run_would_come_late(leader):
    leader.create("daily", **DAILY)
    shift(leader.conn, 1)
    leader.jump_to(NOON + DAY)
    assert decisions(leader.conn) == [(format_instant(SIX + HOUR), None)]


def test_what_should_have_run_by_now_is_missed_and_caught_up(leader):
    leader.create("once", **DAILY)
    leader.create("none", **DAILY, catchup_policy="skip")
    shift(leader.conn, 1)
    leader.jump_to(SIX + HOUR // 2)
    assert replan_moved(now=leader.clock.moment) == {"Europe/Berlin": 2}
    leader.run_to(leader.clock.moment + 2 * SECOND)
    assert len(decisions(leader.conn)) == 2
    leader.jump_to(SIX + 2 * HOUR)
    assert set(decisions(leader.conn)) == {
        (format_instant(SIX), None),
        (format_instant(SIX), Reason.MISSED_SKIP),
    }
    assert len(decisions(leader.conn)) == 2


def test_a40_what_ran_today_does_not_run_again_at_the_later_hour(leader):
    leader.create("daily", **DAILY, overlap_policy="allow_all")
    shift(leader.conn, -1)
    leader.jump_to(SIX - HOUR)
    assert decisions(leader.conn) == [(format_instant(SIX - HOUR), None)]
    # The leader has planned 18:00 of the new rules, so of today again.
    assert leader.next_due() == SIX
    assert replan_moved(now=leader.clock.moment) == {"Europe/Berlin": 1}
    leader.run_to(leader.clock.moment + SECOND)
    leader.jump_to(SIX + DAY)
    assert decisions(leader.conn) == [
        (format_instant(SIX - HOUR), None),
        (format_instant(SIX + DAY), None),
    ]
    assert replan_moved(now=leader.clock.moment) == {}


def test_what_ran_yesterday_is_not_caught_up_at_its_new_hour(ledger):
    job = create_job(definition(**DAILY), now=SIX - 3 * DAY).job_id
    ledger.fired(job, SIX - DAY - HOUR)
    ledger.conn.execute("DELETE FROM chrono_timer_far")
    lay(ledger, job, SIX - HOUR)
    assert replan_moved(now=NOON) == {"Europe/Berlin": 1}
    assert planned(ledger, job) == (SIX, 2)
    assert (ledger.timers(job, kind=3), ledger.skips(job)) == ([], [])
    assert replan_moved(now=NOON) == {}


def lay(ledger, job, moment, *, version=1):
    ledger.conn.execute(
        """
        INSERT INTO chrono_timer_far (due_at, scheduled_for, ref, job_id, version,
            revision, part, kind)
        SELECT to_timestamp(%(at)s / 1000.0), to_timestamp(%(at)s / 1000.0), id, id,
            %(version)s, 1, part, 1 FROM chrono_job WHERE id = %(job)s
        """,
        {"at": moment, "job": job, "version": version},
    )


def test_what_is_planned_rightly_is_left_alone(ledger):
    kinds = [
        DAILY,
        {"cron": "*/5 * * * *"},
        {"cron": "H 3 * * *", "timezone": "America/New_York"},
        {"interval": "7m"},
        {"fixed_delay": "5m"},
        {"run_at": "2055-03-02T00:00:00Z"},
        {**DAILY, "starts_at": "2055-06-01T00:00:00Z"},
    ]
    for n, kind in enumerate(kinds):
        create_job(definition(key=f"k{n}", **kind), now=NOON)
    skipped = create_job(definition(key="skipped", **DAILY), now=NOON).job_id
    skip_next(skipped, count=3, now=NOON)
    before = ledger.rows("SELECT version, changes, epoch FROM chrono_job")
    assert replan_moved(now=NOON + MINUTE) == {}
    assert ledger.rows("SELECT version, changes, epoch FROM chrono_job") == before


def test_only_what_a_zone_decides_is_looked_at(ledger):
    for n, kind in enumerate(({"interval": "7m"}, {"fixed_delay": "5m"})):
        create_job(definition(key=f"k{n}", **kind), now=NOON)
    paused = create_job(definition(key="paused", **DAILY), now=NOON).job_id
    pause_job(paused, now=NOON)
    deleted = create_job(definition(key="deleted", **DAILY), now=NOON).job_id
    delete_job(deleted, now=NOON)
    changed = create_job(definition(key="changed", **DAILY), now=NOON).job_id
    patch_job(changed, {"cron": "0 19 * * *"}, now=NOON)
    ledger.conn.execute(
        "UPDATE chrono_timer_far SET due_at = due_at + interval '1 hour', "
        "scheduled_for = scheduled_for + interval '1 hour' WHERE version = 1"
    )
    assert replan_moved(now=NOON) == {}


def test_who_was_changed_meanwhile_is_left_out(ledger):
    job = create_job(definition(**DAILY), now=NOON).job_id
    patch_job(job, {"name": "New"}, now=NOON)
    assert replan_jobs({job: 1}, now=NOON) == []
    [outcome] = replan_jobs({job: 2}, now=NOON)
    assert (outcome.actions, outcome.version) == (("replanned",), 2)


def test_a_job_that_cannot_be_read_stops_nobody(ledger):
    broken = create_job(definition(key="broken", **DAILY), now=NOON).job_id
    create_job(definition(key="daily", **DAILY), now=NOON)
    ledger.conn.execute(
        "UPDATE chrono_job_revision SET schedule = schedule || "
        """'{"timezone": "Mars/Base"}' WHERE job_id = %s""",
        [broken],
    )
    shift(ledger.conn, 1)
    assert replan_moved(now=NOON) == {"Europe/Berlin": 1}


def test_pages_are_all_of_them_whatever_their_length(ledger, monkeypatch):
    for n in range(23):
        create_job(definition(key=f"k{n}", **DAILY), now=NOON)
        create_job(definition(key=f"q{n}", cron="* * * * *"), now=NOON)
    part = ledger.rows("SELECT part FROM chrono_job LIMIT 1")[0][0]
    ledger.conn.execute("UPDATE chrono_job SET part = %s", [part])
    ledger.conn.execute("UPDATE chrono_timer_far SET part = %s", [part])
    ledger.conn.execute(
        "UPDATE chrono_timer_far SET due_at = due_at - interval '1 hour', "
        "scheduled_for = scheduled_for - interval '1 hour' "
        "WHERE scheduled_for > to_timestamp(%s / 1000.0) + interval '1 hour'",
        [NOON],
    )
    monkeypatch.setattr(replanning, "BATCH", 5)
    assert replan_moved(now=NOON, dry_run=True) == {"Europe/Berlin": 23}
    assert replan_moved(now=NOON) == {"Europe/Berlin": 23}
    sizes = ledger.rows(
        "SELECT count(*) FROM chrono_audit_event WHERE action = 'job.replan' "
        "GROUP BY xmin::text"
    )
    assert max(size for (size,) in sizes) <= 5
    assert replan_moved(now=NOON) == {}


def test_a_replanned_job_keeps_what_rides_in_its_timer(ledger):
    job = create_job(definition(**DAILY, remaining_runs=5), now=NOON - DAY).job_id
    last = ledger.fired(job, SIX - DAY)
    ledger.conn.execute("UPDATE chrono_timer_far SET remaining = 4, prev = %s", [last])
    ledger.conn.execute(
        "UPDATE chrono_timer_far SET due_at = due_at + interval '25 hours', "
        "scheduled_for = scheduled_for + interval '25 hours'"
    )
    assert replan_moved(now=NOON) == {"Europe/Berlin": 1}
    assert planned(ledger, job) == (SIX, 2)
    assert ledger.rows(
        "SELECT remaining, prev FROM chrono_timer_far WHERE version = 2"
    ) == [(4, last)]


def command(*options):
    out = io.StringIO()
    call_command("chronoreplan", *options, stdout=out)
    return out.getvalue().splitlines()


def test_the_command_counts_by_zone_and_writes_down_why(ledger):
    for n, zone in enumerate(("Europe/Berlin", "Asia/Tokyo", "Europe/Berlin")):
        create_job(definition(key=f"k{n}", **{**DAILY, "timezone": zone}))
    data = f"tzdata {data_version()}"
    assert command() == [f"chronoreplan: 0 jobs replanned, by {data}"]
    shift(ledger.conn, 24)
    lines = ["Asia/Tokyo: 1", "Europe/Berlin: 2"]
    assert command("--dry-run") == [
        *lines,
        f"chronoreplan: 3 jobs would be replanned, by {data}",
    ]
    assert ledger.rows("SELECT DISTINCT version FROM chrono_job") == [(1,)]
    assert command() == [*lines, f"chronoreplan: 3 jobs replanned, by {data}"]
    assert command() == [f"chronoreplan: 0 jobs replanned, by {data}"]
    assert ledger.rows(
        "SELECT DISTINCT actor, action, reason FROM chrono_audit_event "
        "WHERE action <> 'job.create'"
    ) == [
        (
            "chronoreplan",
            "job.replan",
            f"The rules of its time zone have changed: {data}.",
        )
    ]


def test_a_database_that_does_not_answer_is_said(ledger, monkeypatch):
    ledger.conn.execute("ALTER TABLE chrono_timer_far RENAME TO elsewhere")
    with pytest.raises(CommandError, match="The database: "):
        command()


def test_who_may_only_read_replans_nothing(ledger):
    reader = Actor(
        kind=ActorKind.KEY, name="r", tenant=1, scopes=frozenset({Scope.READ})
    )
    with pytest.raises(Forbidden):
        replan_moved(actor=reader, now=NOON)


@pytest.mark.parametrize(
    ("expression", "ledger", "activated_at", "moved"),
    [
        ("0 18 * * *", SIX, 0, None),
        ("0 18 * * *", SIX - HOUR, 0, SIX),
        ("0 18 * * *", SIX - HOUR // 2, 0, SIX),
        ("0 18 * * *", SIX + HOUR, 0, None),
        ("0 18 * * *", SIX - HOUR, SIX - HOUR, None),
        ("0 18 * * *", None, 0, None),
        ("0 17,18 * * *", SIX - HOUR // 2, 0, None),
        ("0 18 * * 1", SIX - HOUR, 0, SIX),
        ("0 18 1 3 *", SIX - HOUR, 0, SIX),
    ],
)
def test_an_occurrence_that_moved_is_known_by_its_distance(
    expression, ledger, activated_at, moved
):
    schedule = CronSchedule(expression, timezone="Europe/Berlin")
    found = moved_by_zone(schedule, ledger=ledger, activated_at=activated_at)
    assert found == moved


def test_an_interval_never_moves():
    schedule = Interval(every=HOUR, anchor=0)
    assert moved_by_zone(schedule, ledger=SIX, activated_at=0) is None
