"""Versions as ETags: nobody overwrites what they have not seen.

The tag of version 7 is `"v7"`, or `"v7.5f1c9a02"` where an answer also tells what
changes by itself, as a job's last run: then what stands behind the dot is of that.
If-Match is about the version alone, since that is what a change is made to; 304 is
answered only where nothing of the answer has changed. A weak tag is taken for the same:
proxies that compress weaken tags on the way.
"""

import hashlib
import json
import re

from rest_framework.request import Request

from apps.api.errors import BadHeader, PreconditionRequired
from apps.jobs.errors import VersionConflict

ANY = "*"
_TAG = re.compile(r'"[!#-~]*"')


def etag(version: int, *, beside: object = None) -> str:
    """Return the ETag of a version, and of the JSON that is told beside it."""
    if beside is None:
        return f'"v{version}"'
    text = json.dumps(beside, sort_keys=True)
    return f'"v{version}.{hashlib.sha256(text.encode()).hexdigest()[:8]}"'


def required_version(request: Request) -> int | None:
    """Return the version that If-Match names, None for `*`.

    Raises PreconditionRequired without the header, BadHeader for several tags or none,
    and VersionConflict for a tag that was never one of ours.
    """
    if "If-Match" not in request.headers:
        raise PreconditionRequired(field="If-Match")
    return optional_version(request)


def optional_version(request: Request) -> int | None:
    """Return the version that If-Match names, None where it names none."""
    given = request.headers.get("If-Match", ANY).strip()
    if given == ANY:
        return None
    tag = given.removeprefix("W/")
    if not _TAG.fullmatch(tag):
        raise BadHeader(
            'If-Match is one ETag with its quotes, as "v7", or * for any version.',
            field="If-Match",
        )
    found = re.fullmatch(r'"v([0-9]{1,9})(?:\.[0-9a-f]{8})?"', tag)
    if found is None:
        raise VersionConflict(field="If-Match")
    return int(found[1])


def unchanged(request: Request, tag: str) -> bool:
    """Tell whether If-None-Match names this ETag: then the answer is 304."""
    given = request.headers.get("If-None-Match", "")
    tags = {one.strip().removeprefix("W/") for one in given.split(",")}
    return tag in tags or ANY in tags
