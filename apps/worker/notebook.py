"""The notes of one execution: told by its handler in any thread, written in batches."""

import json
import threading
from collections.abc import Callable
from typing import Any

from apps.runs.store import Lease, Note
from apps.worker.storable import RESULT_LIMIT, checked, clean
from chrono.rules.instants import Millis
from chrono.tasks import NotStorable

LONGEST_TEXT = 200


class Notebook:
    """The notes of one execution, between its handler and the session that writes."""

    def __init__(
        self,
        lease: Lease,
        *,
        monotonic: Callable[[], Millis],
        written: Callable[["Notebook"], None],
    ) -> None:
        self.lease = lease
        self.closed = False
        """Whether the execution is over: what comes now is told in vain."""
        self.told_at: Millis | None = None
        """When the handler last told something, on the monotonic clock."""
        self.tries = 0
        self._monotonic = monotonic
        self._written = written
        self._lock = threading.Lock()
        self._checkpoint: str | None = None
        self._progress: tuple[float | None, str] | None = None

    def checkpoint(self, value: Any) -> None:
        """Keep a value until it is written. Raises :class:`NotStorable`."""
        self._tell(checkpoint=checkpoint_text(value))

    def progress(self, share: float | None, text: str) -> None:
        """Keep how far it is until that is written. Raises :class:`NotStorable`."""
        self._tell(progress=progress_of(share, text))

    @property
    def is_pending(self) -> bool:
        """Whether something waits to be written."""
        return self._checkpoint is not None or self._progress is not None

    @property
    def weight(self) -> int:
        """How many bytes wait to be written, about."""
        return 300 + len(self._checkpoint or "")

    def take(self) -> Note | None:
        """Return what waits to be written and forget it; None for nothing."""
        with self._lock:
            checkpoint, self._checkpoint = self._checkpoint, None
            progress, self._progress = self._progress, None
        if checkpoint is None and progress is None:
            return None
        share, text = (None, None) if progress is None else progress
        return Note(
            run_id=self.lease.run_id,
            token=self.lease.token,
            share=share,
            text=text,
            checkpoint=checkpoint,
        )

    def give_back(self, note: Note) -> None:
        """Keep a note that was not written, unless a newer one came meanwhile."""
        with self._lock:
            if self._checkpoint is None:
                self._checkpoint = note.checkpoint
            if self._progress is None and note.text is not None:
                self._progress = (note.share, note.text)

    def _tell(
        self,
        *,
        checkpoint: str | None = None,
        progress: tuple[float | None, str] | None = None,
    ) -> None:
        self.told_at = self._monotonic()
        with self._lock:
            first = self._checkpoint is None and self._progress is None
            if checkpoint is not None:
                self._checkpoint = checkpoint
            if progress is not None:
                self._progress = progress
        if first:
            self._written(self)


def checkpoint_text(value: Any) -> str:
    """Return a checkpoint as JSON text; raise :class:`NotStorable` with the why."""
    try:
        return json.dumps(checked(value))
    except NotStorable as error:
        raise NotStorable(
            f"A checkpoint is JSON of at most {RESULT_LIMIT} bytes: {error}."
        ) from None


def progress_of(share: object, text: str) -> tuple[float | None, str]:
    """Return share and text fit to be stored; raise :class:`NotStorable`."""
    if share is not None:
        if (
            isinstance(share, bool)
            or not isinstance(share, int | float)
            or not -1e-6 <= share <= 1 + 1e-6
        ):
            raise NotStorable(f"A share is a number from 0 to 1, not {share!r:.40}.")
        share = min(1.0, max(0.0, float(share)))
    kept = clean(str(text))
    if len(kept) > LONGEST_TEXT:
        kept = f"{kept[: LONGEST_TEXT - 1]}…"
    return share, kept
