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


class JobDeleted(JobNotFound):
    """The job is deleted; restore it first."""

    code = "job_deleted"


class JobNotDeleted(ChronoError):
    """The job is not deleted, so there is nothing to restore."""

    code = "job_not_deleted"


class VersionConflict(ChronoError):
    """The job has another version by now: read it again, then change it."""

    code = "version_conflict"


class NothingToSkip(ChronoError):
    """The job has no next occurrence: it is paused, or its schedule is over."""

    code = "nothing_to_skip"


class BackfillTooLarge(BadValue):
    """The range has more than 10,000 occurrences: backfill it in parts."""

    code = "backfill_too_large"


class QuotaExceeded(BadValue):
    """The tenant has as much as its quota allows."""

    code = "quota"


class KeyTaken(ChronoError):
    """Another job of this tenant has the same key."""

    code = "key_taken"


class JobsBusy(ChronoError):
    """Another change holds these jobs or their partitions; nothing was changed, try
    again."""

    code = "jobs_busy"
