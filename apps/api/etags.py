"""Versions as ETags: nobody overwrites what they have not seen.

The tag of version 7 is `"v7"`. A weak tag is taken for the same: proxies that compress
weaken tags on the way, and what a version names is the value, not its bytes.
"""

from rest_framework.request import Request

from apps.api.errors import BadHeader, PreconditionRequired, VersionConflict

ANY = "*"


def etag(version: int) -> str:
    """Return the ETag of a version."""
    return f'"v{version}"'


def required_version(request: Request) -> int | None:
    """Return the version that If-Match names, None for `*`.

    Raises PreconditionRequired without the header, BadHeader for several tags, and
    VersionConflict for a tag that was never one of ours.
    """
    if "If-Match" not in request.headers:
        raise PreconditionRequired(field="If-Match")
    return optional_version(request)


def optional_version(request: Request) -> int | None:
    """Return the version that If-Match names, None where it names none."""
    given = request.headers.get("If-Match", ANY).strip()
    if given == ANY:
        return None
    if "," in given:
        raise BadHeader("If-Match names one version, or * for any.", field="If-Match")
    tag = given.removeprefix("W/")
    number = tag.removeprefix('"v').removesuffix('"')
    if tag != f'"v{number}"' or not (number.isascii() and number.isdigit()):
        raise VersionConflict(field="If-Match")
    if len(number) > 9:
        raise VersionConflict(field="If-Match")
    return int(number)


def check(version: int | None, *, current: int) -> None:
    """Raise VersionConflict unless the wanted version is the current one."""
    if version is not None and version != current:
        raise VersionConflict(
            f"It is at version {current} by now, not {version}: read it again, then "
            "change it.",
            field="If-Match",
        )


def unchanged(request: Request, version: int) -> bool:
    """Tell whether If-None-Match names this version: then the answer is 304."""
    given = request.headers.get("If-None-Match", "")
    tags = {tag.strip().removeprefix("W/") for tag in given.split(",")}
    return etag(version) in tags or ANY in tags
