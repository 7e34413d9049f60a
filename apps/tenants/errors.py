"""What can be wrong with who asks; each class's docstring is its message."""

from chrono.rules.errors import BadValue, ChronoError


class Forbidden(ChronoError):
    """Whoever asks may not do this."""

    code = "forbidden"


class KeyRefused(ChronoError):
    """The API key opens nothing."""

    code = "key_refused"


class KeyMalformed(KeyRefused):
    """This is no whole API key: it is cut or mistyped."""

    code = "key_malformed"


class KeyUnknown(KeyRefused):
    """There is no such API key."""

    code = "key_unknown"


class KeyRevoked(KeyRefused):
    """The API key was revoked."""

    code = "key_revoked"


class KeyExpired(KeyRefused):
    """The API key has expired."""

    code = "key_expired"


class KeyNotFound(ChronoError):
    """This tenant has no API key of this id."""

    code = "key_not_found"


class KeyReplaced(ChronoError):
    """The API key has a successor already: revoke one of the two first."""

    code = "key_replaced"


class TenantNotFound(ChronoError):
    """There is no such tenant."""

    code = "tenant_not_found"


class TenantNameTaken(ChronoError):
    """Another tenant has this name."""

    code = "tenant_name_taken"


class UnknownScope(BadValue):
    """A scope is one of read, operate, write, admin and worker."""

    code = "unknown_scope"


class BadName(BadValue):
    """A name is one line of 1 to 100 printable characters."""

    code = "bad_name"


class AlreadyPast(BadValue):
    """The instant is not in the future."""

    code = "already_past"
