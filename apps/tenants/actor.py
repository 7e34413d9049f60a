"""Who acts, for which tenant, and what they may do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from apps.tenants.errors import Forbidden, UnknownScope


class Scope(StrEnum):
    """What a caller may do; each says what it contains besides itself."""

    READ = "read"
    """See everything of the tenant."""
    OPERATE = "operate"
    """Run, cancel and redrive; contains read."""
    WRITE = "write"
    """Create, change, pause and delete jobs; contains read."""
    ADMIN = "admin"
    """Keys and the tenant's limits; contains read, operate and write."""
    WORKER = "worker"
    """Claim and settle runs; contains nothing else, and nothing else contains it."""


_CONTAINED = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.OPERATE: frozenset({Scope.OPERATE, Scope.READ}),
    Scope.WRITE: frozenset({Scope.WRITE, Scope.READ}),
    Scope.ADMIN: frozenset({Scope.ADMIN, Scope.WRITE, Scope.OPERATE, Scope.READ}),
    Scope.WORKER: frozenset({Scope.WORKER}),
}
ALL_SCOPES = frozenset(Scope)


class ActorKind(StrEnum):
    """By which way an actor came in."""

    KEY = "key"
    USER = "user"
    COMMAND = "command"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Whoever does something. ``tenant`` None stands for all tenants."""

    kind: ActorKind
    name: str
    tenant: int | None
    scopes: frozenset[Scope]
    request_id: str = ""

    @classmethod
    def system(cls, name: str) -> Actor:
        """Return the actor for what Chrono does of itself; it may do everything."""
        return cls(kind=ActorKind.SYSTEM, name=name, tenant=None, scopes=ALL_SCOPES)

    @classmethod
    def command(cls, name: str) -> Actor:
        """Return the actor for a management command; it may do everything."""
        return cls(kind=ActorKind.COMMAND, name=name, tenant=None, scopes=ALL_SCOPES)

    @classmethod
    def user(cls, name: str, *, request_id: str = "") -> Actor:
        """Return the actor for a person whom the admin let in as superuser."""
        return cls(
            kind=ActorKind.USER,
            name=name,
            tenant=None,
            scopes=ALL_SCOPES,
            request_id=request_id,
        )

    def may(self, scope: Scope) -> bool:
        """Tell whether one of the actor's scopes contains this one."""
        return any(scope in _CONTAINED[held] for held in self.scopes)

    def require(self, scope: Scope) -> None:
        """Raise Forbidden unless the actor may do what the scope stands for."""
        if not self.may(scope):
            held = ", ".join(sorted(self.scopes)) or "none"
            raise Forbidden(f"This needs the scope {scope}; held: {held}.")

    def sees(self, tenant: int) -> bool:
        """Tell whether the tenant's objects exist for this actor at all."""
        return self.tenant is None or self.tenant == tenant


def parse_scopes(words: Iterable[str]) -> tuple[Scope, ...]:
    """Return the scopes that these words name, each once, in their fixed order.

    Raises UnknownScope for another word, and for none at all.
    """
    named = set(words)
    unknown = named - set(ALL_SCOPES)
    if unknown or not named:
        listed = ", ".join(Scope)
        which = f"{min(unknown)[:40]!r} is no scope" if unknown else "No scope is named"
        raise UnknownScope(f"{which}: choose from {listed}.", field="scopes")
    return tuple(scope for scope in Scope if scope in named)
