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


class RunNotFinished(ChronoError):
    """The run is not over yet: cancel it first, or wait."""

    code = "run_not_finished"


class RunRerunAlready(ChronoError):
    """The run was run again already; what came of that can be run again in turn."""

    code = "run_rerun_already"


class RunUnderWay(ChronoError):
    """As many runs that somebody asked for are under way as the job may have."""

    code = "run_under_way"


class LetterNotFound(ChronoError):
    """There is no such dead letter."""

    code = "dead_letter_not_found"


class LetterClosed(ChronoError):
    """Somebody did something about this dead letter already."""

    code = "dead_letter_closed"


class NotToTerminate(ChronoError):
    """A run is terminated only where it was told to stop a minute ago and did not."""

    code = "not_to_terminate"
