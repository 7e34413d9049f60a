"""What can be wrong with a change of jobs; each class's docstring is its message."""

from chrono.rules.errors import BadValue, ChronoError


class UnknownField(BadValue):
    """A definition has no field of this name."""

    code = "unknown_field"


class NotSupportedYet(BadValue):
    """This field is known, but not supported yet."""

    code = "not_supported_yet"


class JobNotFound(ChronoError):
    """There is no such job."""

    code = "job_not_found"


class KeyTaken(ChronoError):
    """Another job of this tenant has the same key."""

    code = "key_taken"


class JobsBusy(ChronoError):
    """Another change holds these jobs or their partitions; nothing was changed, try
    again."""

    code = "jobs_busy"
