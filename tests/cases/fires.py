"""A schedule's fires in the form in which the cases give them: `2026-03-08 07:00`."""

from chrono.rules.instants import Millis, format_instant, parse_instant
from chrono.rules.schedule import CronSchedule, Schedule, next_after, validate


def at(text: str) -> Millis:
    """Return the instant of `2026-03-08 07:00`, in UTC."""
    return parse_instant(f"{text.replace(' ', 'T')}Z")


def shown(moment: Millis | None) -> str:
    """Return an instant as `2026-03-08 07:00`, with seconds where it has some."""
    if moment is None:
        return "never"
    return (
        format_instant(moment).removesuffix("Z").removesuffix(":00").replace("T", " ")
    )


def fires(expression: str, zone: str, after: str, count: int = 1) -> list[str]:
    """Return the next fires of an expression, which has to be a valid one."""
    schedule = CronSchedule(expression, zone)
    validate(schedule)
    return following(schedule, after, count)


def following(schedule: Schedule, after: str, count: int = 1) -> list[str]:
    """Return the next fires of a schedule."""
    found: list[str] = []
    moment: Millis | None = at(after)
    while moment is not None and len(found) < count:
        moment = next_after(schedule, moment)
        found.append(shown(moment))
    return found
