"""Does anything fire? What an on-call person asks first, answered in one word.

Seen from outside: by the locks of whoever leads, and by what is due and still there. A
scheduler that lives and fires nothing shows in the second.
"""

from dataclasses import dataclass

from apps.runtime.sessions import Connection
from apps.timers import store
from apps.timers.store import Leaders
from chrono.rules.durations import format_duration
from chrono.rules.instants import HOUR, MINUTE, SECOND, Millis
from chrono.rules.partitions import PARTITIONS

LATE: Millis = 5 * SECOND
"""From here on the oldest due timer means that firing has fallen behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """Who leads, and how long the timer that waits longest is past its time."""

    leaders: Leaders
    late: Millis

    @property
    def state(self) -> str:
        """Return ``stopped`` where nobody leads, ``late`` where what is due waits,
        ``partly`` where some partitions have no leader, else ``ok``.
        """
        if not self.leaders.partitions:
            return "stopped"
        if self.late > LATE:
            return "late"
        return "ok" if self.leaders.partitions == PARTITIONS else "partly"

    @property
    def sentence(self) -> str:
        """Return the state in words for people; empty where all is well."""
        unit = next(
            u for u in (HOUR, MINUTE, SECOND, 1) if self.late >= 2 * u or u == 1
        )
        waited = format_duration(self.late // unit * unit)
        since = f" What is due has waited for {waited}." if self.late > LATE else ""
        led = f"{self.leaders.partitions} of {PARTITIONS}"
        match self.state:
            case "stopped":
                return f"Nothing fires: no scheduler leads any partition.{since}"
            case "late":
                return f"Firing has fallen behind.{since} {led} partitions are led."
            case "partly":
                return f"Some jobs do not fire: {led} partitions are led."
            case _:
                return ""


def look(conn: Connection) -> Firing:
    """Return how firing does right now, by the database's clock."""
    return Firing(leaders=store.read_leaders(conn), late=store.read_oldest_due(conn))
