"""What a fault is, and its one line."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from tests.rigs.faults.field import Field, Load, everyday


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault, what it strikes, and what it may cost."""

    name: str
    title: str
    bar: str
    """What the figure must be, in words."""
    strike: Callable[[Field], str]
    """Does it and returns the figure in words; findings go to the field."""
    load: Callable[[str], Load] = everyday
    """Returns the jobs that are at work meanwhile, their keys beginning so."""
    prepare: str = ""
    """What its server's database must have from the beginning, as statements."""
    latest_s: float = math.inf
    """By how much an occurrence may be decided late."""
    slowest_s: float = math.inf
    """By how much a run may be started late."""
    lacks: Callable[[], str] = str
    """Returns what this machine lacks for it; an empty text means: nothing."""
