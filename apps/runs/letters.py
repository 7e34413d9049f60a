"""Dead letters: found, noted, and closed where nothing is to be done about them.

A letter is what a run that failed for good leaves, for 90 days: its payload and its
errors. It is open until somebody has the run run again, discards it, or says what
became of the run. The run itself stays as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args
from uuid import UUID

from apps.runs import letter_store
from apps.runs.errors import LetterClosed, LetterNotFound
from apps.runs.letter_store import DISCARDED, RERUN, Letter
from apps.runtime.sessions import Connection
from apps.tenants import audit
from apps.tenants.actor import Actor, Scope
from apps.tenants.event import Event
from chrono.rules.errors import BadValue
from chrono.rules.instants import Millis
from chrono.rules.keys import PAST_ID, partition_of_run
from chrono.rules.states import Reason

type LetterState = Literal["open", "rerun", "discarded", "resolved"]

STATES: tuple[LetterState, ...] = get_args(LetterState.__value__)
MOST = 1_000
"""How many letters one call is about at most."""
_LOOK = 1_000
_LOOKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which dead letters are meant; None leaves a question open."""

    state: LetterState | None = "open"
    job: UUID | None = None
    target: str | None = None
    """A task's whole name, or how a url begins."""
    reason: Reason | None = None
    queue: str | None = None
    tag: str | None = None
    since: Millis | None = None
    """Died at or after this."""
    until: Millis | None = None
    """Died before this."""
    living: bool = False
    """Only those whose job is not deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPage:
    """Some letters, and the run from which the next page goes on; None at the end."""

    letters: Sequence[Letter]
    next: UUID | None


def state_of(letter: Letter) -> LetterState:
    """Return what was done about a letter."""
    if letter.closed is None:
        return "open" if letter.resolved is None else "resolved"
    return "rerun" if letter.closed == RERUN else "discarded"


def list_letters(
    conn: Connection,
    *,
    tenant: int,
    wanted: LetterFilter,
    before: UUID | None = None,
    limit: int,
) -> LetterPage:
    """Return a tenant's letters, the newest scheduled_for first, before a run's.

    A page may be short and yet have a ``next``: after 5,000 letters that do not match
    it is given back.
    """
    found: list[Letter] = []
    before = PAST_ID if before is None else before
    for _ in range(_LOOKS):
        most = limit - len(found)
        look = letter_store.list_dead_letters(
            conn,
            tenant=tenant,
            before=before,
            look=_LOOK,
            limit=most + 1,
            open_only=wanted.state == "open",
            living=wanted.living,
            closed={"rerun": RERUN, "discarded": DISCARDED}.get(wanted.state or ""),
            resolved=wanted.state == "resolved",
            job=wanted.job,
            reason=wanted.reason,
            queue=wanted.queue,
            tag=wanted.tag,
            target=wanted.target,
            since=wanted.since,
            until=wanted.until,
        )
        found += look.letters[:most]
        if len(look.letters) > most:
            return LetterPage(letters=found, next=found[-1].run_id)
        if look.last is None:
            return LetterPage(letters=found, next=None)
        before = look.last
    return LetterPage(letters=found, next=before)


def get_letter(
    conn: Connection, run: UUID, *, tenant: int | None
) -> tuple[Letter, object, list[object]]:
    """Return a letter with its payload and its errors. Raises LetterNotFound."""
    letter = letter_store.load_dead_letters(conn, runs=[run], tenant=tenant).get(run)
    more = letter_store.get_dead_letter(conn, run=run, part=partition_of_run(run))
    if letter is None or more is None:
        raise LetterNotFound
    return letter, *more


def load(
    conn: Connection,
    runs: Sequence[UUID],
    *,
    tenant: int | None,
    locked: bool = False,
) -> dict[UUID, Letter]:
    """Return those letters of these runs that there are, locked first if wanted."""
    if locked:
        letter_store.lock_dead_letters(conn, runs=runs, tenant=tenant)
    return letter_store.load_dead_letters(conn, runs=runs, tenant=tenant)


def load_payloads(conn: Connection, runs: Sequence[UUID]) -> dict[UUID, Any]:
    """Return the payloads of the letters of these runs: take few at a time."""
    return letter_store.load_letter_payloads(conn, runs=runs)


def load_named(
    conn: Connection, runs: Sequence[UUID], *, tenant: int | None
) -> list[Letter]:
    """Return the letters of these runs, each open and in their order.

    They are locked until the transaction ends. Raises LetterNotFound and LetterClosed
    with the place in the list, and BadValue for none, too many, or one named twice.
    """
    if not 1 <= len(runs) <= MOST:
        raise BadValue(f"ids are 1 to {MOST} ids of runs.", field="ids")
    found = load(conn, runs, tenant=tenant, locked=True)
    seen: set[UUID] = set()
    for n, run in enumerate(runs):
        if run in seen:
            raise BadValue(f"The run {run} is named twice.", field=f"ids.{n}")
        seen.add(run)
        if run not in found:
            raise LetterNotFound(f"{run} has no dead letter.", field=f"ids.{n}")
        check_open(found[run], field=f"ids.{n}")
    return [found[run] for run in runs]


def check_open(letter: Letter, *, field: str | None = None) -> None:
    """Raise LetterClosed for a letter about which something was done."""
    if letter.rerun_id is not None or letter.closed == RERUN:
        raise LetterClosed(
            f"{letter.run_id} was run again already, as {letter.rerun_id}.", field=field
        )
    if letter.resolved is not None:
        raise LetterClosed(
            f"{letter.run_id} was resolved: a person said what became of it.",
            field=field,
        )
    if letter.closed is not None:
        raise LetterClosed(
            f"{letter.run_id} was discarded by {letter.closed_by}.", field=field
        )


def discard(conn: Connection, runs: Sequence[UUID], *, note: str, actor: Actor) -> int:
    """Close letters that nothing is to be done about: all of them or none.

    The note says why; return how many they are. Raises Forbidden, BadValue, and what
    :func:`load_named` raises.
    """
    actor.require(Scope.OPERATE)
    if not note:
        raise BadValue(
            "note is missing: say why nothing is to be done about it.", field="note"
        )
    with conn.transaction():
        letters = load_named(conn, runs, tenant=actor.tenant)
        closed = letter_store.discard_if_open(
            conn, runs=runs, tenant=actor.tenant, by=actor.name, note=note
        )
        events = [
            _event(
                letter,
                "dead_letter.discard",
                before={"state": "open", "note": letter.note},
                after={"state": "discarded", "note": note},
            )
            for letter in letters
        ]
        audit.record(conn, actor=actor, events=events)
    return len(closed)


def write_note(conn: Connection, run: UUID, *, note: str, actor: Actor) -> None:
    """Put a note on a letter in place of the one it has; an empty one takes it away.

    Earlier ones are in the audit. Raises Forbidden, LetterNotFound.
    """
    actor.require(Scope.OPERATE)
    with conn.transaction():
        found = load(conn, [run], tenant=actor.tenant, locked=True)
        if run not in found:
            raise LetterNotFound
        letter_store.note_dead_letter(
            conn,
            run=run,
            part=partition_of_run(run),
            by=actor.name,
            note=note or None,
        )
        event = _event(
            found[run],
            "dead_letter.note",
            before={"note": found[run].note},
            after={"note": note or None},
        )
        audit.record(conn, actor=actor, events=[event])


def _event(
    letter: Letter, action: str, *, before: dict[str, Any], after: dict[str, Any]
) -> Event:
    return Event(
        tenant=letter.tenant,
        action=action,
        object_kind="run",
        object_id=str(letter.run_id),
        before=before,
        after=after,
        reason=str(after["note"] or ""),
    )
