"""What handlers tell of themselves: checkpoints and progress, written once a second.

One statement carries the notes of all runs of the worker, on a session of its own that
a worker has only once a handler tells something. A run that is to be tried again is
settled behind its last note, so that the next attempt goes on from there.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Sequence

import psycopg

from apps.runs import store
from apps.runs.store import Lease, Note, Settlement
from apps.runtime.sessions import Connection
from apps.worker.lines import Line
from apps.worker.notebook import Notebook
from apps.worker.pauses import Pauses, wait_within
from chrono.rules.instants import Millis

log = logging.getLogger("chrono.worker")

EVERY_S = 1.0
BATCH = 100
HEAVIEST = 2 * 1024 * 1024
"""Bytes of checkpoints in one statement, from which it is full."""
SOON_S = 0.05
TRIES = 20
"""How often a note is sent whose lease somebody else has locked."""


class Noter:
    """Writes the notes of all executions of one life of a worker."""

    def __init__(
        self,
        *,
        line: Line,
        settle: Callable[[Settlement], None],
        lost: Callable[[set[uuid.UUID]], None],
        monotonic: Callable[[], Millis],
    ) -> None:
        self._line = line
        self._settle = settle
        self._lost = lost
        self._monotonic = monotonic
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[uuid.UUID, Notebook] = {}
        self._flying: set[uuid.UUID] = set()
        self._held: dict[uuid.UUID, Settlement] = {}
        self._over: list[uuid.UUID] = []
        self._all_at: Millis = 0
        self._some = asyncio.Event()
        self._hurry = asyncio.Event()
        self._done = asyncio.Event()
        self._done.set()

    def open(self, lease: Lease) -> Notebook:
        """Return a notebook for an execution whose handler may tell something."""
        return Notebook(lease, monotonic=self._monotonic, written=self._written)

    def settle(self, settlement: Settlement, book: Notebook, *, over: bool) -> None:
        """Have an execution settled that has a notebook.

        Behind its last note, unless it is ``over``: then nobody goes on from there.
        """
        token = settlement.token
        book.closed = True
        if over:
            self._waiting.pop(token, None)
        elif book.is_pending or token in self._flying:
            if book.is_pending:
                self._waiting[token] = book
            self._held[token] = settlement
            self._done.clear()
            self._some.set()
            self._hurry.set()
            return
        self._settle(settlement)

    def close(self, book: Notebook) -> None:
        """Take no more notes of an execution that is settled already."""
        book.closed = True
        self._waiting.pop(book.lease.token, None)

    def forget(self, run: uuid.UUID) -> None:
        """Have what a run told forgotten, which succeeded or was cancelled."""
        self._over.append(run)
        self._some.set()

    async def wait_done(self) -> None:
        """Return once every settlement so far is handed on."""
        await self._done.wait()

    async def run(self) -> None:
        """Write until cancelled. Raises ChronoError where a pooler answers."""
        pauses = Pauses()
        while True:
            await self._some.wait()
            self._hurry.clear()
            try:
                await self.step()
            except psycopg.Error as error:
                await pauses.wait(f"notes were not written: {error}", log)
                continue
            pauses.reset()
            if not self._waiting and not self._over:
                self._some.clear()
            await self._rest()

    async def step(self) -> None:
        """Write what waits, and settle what waited for that."""
        over, self._over = self._over[:BATCH], self._over[BATCH:]
        batch = self._batch()
        self._flying = {note.token for _, note in batch}
        try:
            written, gone = await self._write([note for _, note in batch], over)
        except psycopg.Error:
            self._over[:0] = over
            for book, note in batch:
                self._again(book, note)
            raise
        finally:
            self._flying = set()
        for book, note in batch:
            if note.run_id not in written and note.run_id not in gone:
                self._insist(book, note)
        if gone:
            self._lost({note.token for _, note in batch if note.run_id in gone})
        self._release()

    async def _rest(self) -> None:
        """Return after a second, or sooner where a settlement waits."""
        if self._held:
            await asyncio.sleep(SOON_S)
        else:
            await wait_within(self._hurry, EVERY_S)

    def _batch(self) -> list[tuple[Notebook, Note]]:
        """Take what is written next: once a second all, else what holds up a settle."""
        tokens = [token for token in self._held if token in self._waiting]
        now = self._monotonic()
        if now >= self._all_at:
            self._all_at = now + int(EVERY_S * 1000)
            tokens = list(dict.fromkeys([*tokens, *self._waiting]))
        batch: list[tuple[Notebook, Note]] = []
        weight = 0
        for token in tokens:
            if len(batch) == BATCH or weight > HEAVIEST:
                self._all_at = 0
                break
            book = self._waiting.pop(token)
            weight += book.weight
            note = book.take()
            if note is not None:
                batch.append((book, note))
        return batch

    async def _write(
        self, notes: Sequence[Note], over: Sequence[uuid.UUID]
    ) -> tuple[set[uuid.UUID], set[uuid.UUID]]:
        def write(conn: Connection) -> tuple[set[uuid.UUID], set[uuid.UUID]]:
            if over:
                store.forget_progress(conn, runs=over)
            return _write_notes(conn, notes) if notes else (set(), set())

        if not notes and not over:
            return set(), set()
        return await self._line.call(write)

    def _insist(self, book: Notebook, note: Note) -> None:
        """Tell it again: a cancel or a settle had its lease for a moment."""
        book.tries += 1
        if book.tries < TRIES:
            self._again(book, note)
        else:
            facts = {"run": note.run_id}
            log.error(
                "a note is given up: its lease stays locked", extra={"facts": facts}
            )

    def _again(self, book: Notebook, note: Note) -> None:
        book.give_back(note)
        self._waiting[note.token] = book

    def _release(self) -> None:
        for token in [t for t in self._held if t not in self._waiting]:
            self._settle(self._held.pop(token))
        if not self._held:
            self._done.set()

    def _written(self, book: Notebook) -> None:
        # The loop of a life that is over is closed: then nobody wants to know.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wait_for, book)

    def _wait_for(self, book: Notebook) -> None:
        if not book.closed:
            book.tries = 0
            self._waiting[book.lease.token] = book
            self._some.set()


def _write_notes(
    conn: Connection, notes: Sequence[Note]
) -> tuple[set[uuid.UUID], set[uuid.UUID]]:
    """Write a batch; what the database refuses must not hold up the others."""
    try:
        return store.note_if_leased(conn, notes)
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        if len(notes) > 1:
            found = [_write_notes(conn, [note]) for note in notes]
            return (
                set().union(*(written for written, _ in found)),
                set().union(*(gone for _, gone in found)),
            )
        log.error(
            "the database refused a note",
            extra={"facts": {"run": notes[0].run_id, "error": error}},
        )
        return {notes[0].run_id}, set()
