"""Chrono: a distributed cron on Django and PostgreSQL.

`chrono.rules` holds the pure decisions, `apps.*` the rooms of the pipeline, and this
package what ties them together: settings, logging and the `task` decorator.
"""

import zoneinfo

from chrono.tasks import Context, NotStorable, OnceBusy, RunCancelled, task

# One zone database everywhere: the pinned `tzdata` package, never the machine's own
# files, so that two machines cannot disagree about when a day begins.
zoneinfo.reset_tzpath(())

__all__ = ["Context", "NotStorable", "OnceBusy", "RunCancelled", "__version__", "task"]
__version__ = "0.1.0"
