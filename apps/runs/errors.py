"""What can be wrong with a request about a run; each docstring is its message."""

from chrono.rules.errors import ChronoError


class RunNotFound(ChronoError):
    """There is no such run."""

    code = "run_not_found"


class RunFinished(ChronoError):
    """The run is over; nothing about it changes any more."""

    code = "run_finished"


class RunNotResolvable(ChronoError):
    """Only a run that is unknown or dead is resolved."""

    code = "run_not_resolvable"


class RunResolved(ChronoError):
    """Somebody resolved the run otherwise at this moment."""

    code = "run_resolved"


class RunNotWaiting(ChronoError):
    """The run does not wait for its time; only one that does can be moved."""

    code = "run_not_waiting"
