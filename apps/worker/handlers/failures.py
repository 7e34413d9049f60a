"""What a handler raised, as the failure of an attempt."""

import traceback

from chrono.rules.retry import Failure

TRACE_FRAMES = 8


def failure_of(error: BaseException) -> Failure:
    """Return an exception as a failure, with the last frames of the function."""
    # The first frame is this room's own.
    frames = traceback.extract_tb(error.__traceback__)[1:][-TRACE_FRAMES:]
    trace = "".join(traceback.format_list(frames))
    return Failure("exception", f"{_words(error)}\n{trace}".rstrip())


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  (its __str__ is somebody else's code too)
        return type(error).__name__
