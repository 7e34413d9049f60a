"""What a job's page says of what is wrong with it."""

import uuid

from django.urls import reverse

from apps.jobs.watch_store import Told, change_breaches
from chrono.rules.watch import NO_RUN, Breach, Change, WatchKind
from tests.console.conftest import BASE

LATE, NO_SUCCESS = WatchKind.LATE, WatchKind.NO_SUCCESS


def shown(client, seen):
    answer = client.get(reverse("admin:chrono_jobs_job_change", args=[seen.job]))
    assert answer.status_code == 200
    return answer.content.decode()


def tell(seen, change, *breaches, kind=LATE, detail="How it is."):
    told = [
        Told(
            breach=Breach(kind=kind, job_id=seen.job, run_id=run),
            change=change,
            tenant=1,
            part=seen.part,
            detail=detail,
        )
        for run in breaches
    ]
    assert change_breaches(seen.conn, told=told, now=BASE) == len(told)


def test_what_is_wrong_is_a_warning_until_it_is_over(client, make_job):
    seen = make_job()
    assert "What was noticed last" not in shown(client, seen)
    run = uuid.uuid4()
    tell(seen, Change.BEGINS, run, detail="It <b>waits</b>.")
    tell(seen, Change.BEGINS, NO_RUN, kind=NO_SUCCESS)
    text = shown(client, seen)
    assert "<strong>A run has not begun</strong>" in text
    assert "<strong>No success for too long</strong>" in text
    assert "It &lt;b&gt;waits&lt;/b&gt;." in text
    assert str(run) in text
    tell(seen, Change.ENDS, run)
    text = shown(client, seen)
    assert "<strong>A run has not begun</strong>" not in text
    assert "<strong>No success for too long</strong>" in text
    assert "A run has not begun: over" in text


def test_of_very_much_only_some_is_shown(client, make_job):
    seen = make_job()
    tell(seen, Change.BEGINS, *[uuid.UUID(int=n) for n in range(1, 41)])
    text = shown(client, seen)
    assert text.count("<strong>A run has not begun</strong>") == 10
    assert "More is wrong than is shown here." in text
