"""The OpenAPI document: what drf-spectacular gathers, with our shapes and refusals."""

from typing import Any

from drf_spectacular.openapi import AutoSchema

from apps.api import gate_shapes, job_shapes, letter_shapes, past_shapes, shapes

_MEDIA = "application/problem+json"
_BODY_REFUSALS = ("411", "413", "415", "422")
# Of a batch each item is refused for itself.
_UNDER_QUOTA = {
    ("post", "/api/v1/jobs"),
    ("patch", "/api/v1/jobs/{job_id}"),
    ("put", "/api/v1/jobs/by-key/{key}"),
    ("post", "/api/v1/jobs/{job_id}/restore"),
    ("post", "/api/v1/jobs/{job_id}/run"),
    ("post", "/api/v1/runs/{run_id}/retry"),
    ("post", "/api/v1/dead-letters/redrive"),
}
_ALWAYS = ("400", "401", "403")
_WORDS = {
    "400": "The request cannot be read, or has an unknown parameter.",
    "401": "No API key, or one that opens nothing.",
    "403": "The key lacks the scope.",
    "404": "There is no such thing, or it is another tenant's.",
    "409": "Its state, or another request, stands against it.",
    "410": "The job is deleted.",
    "411": "The length of the body is not said.",
    "412": "It has another version by now.",
    "413": "The body is larger than 1 MiB.",
    "415": "The body is no JSON.",
    "422": "A field of the body has a wrong value.",
    "428": "If-Match is missing.",
    "429": "A quota of the tenant: `errors` names it.",
    "503": "The database does not answer in time.",
}


class Schema(AutoSchema):
    """Describes a view by what it says of itself."""

    def get_tags(self) -> list[str]:
        """Return the resource's name: the first part after the version."""
        return [self.path.removeprefix("/api/v1/").split("/")[0]]

    def get_auth(self) -> list[dict[str, Any]]:
        """Return the one way in, with the scope that the method needs."""
        scopes = getattr(self.view, "scopes", {})
        scope = scopes.get(self.method)
        return [{"key": [] if scope is None else [scope.value]}]

    def get_description(self, *_: Any) -> str:
        """Return the method's own words, and the scope it needs."""
        scope = getattr(self.view, "scopes", {}).get(self.method)
        said: str = super().get_description()
        return f"{said}\n\nNeeds the scope `{scope.value}`." if scope else said


type Endpoint = tuple[str, str, str, Any]


def only_versioned(endpoints: list[Endpoint]) -> list[Endpoint]:
    """Leave out the short forms: they are the same views."""
    return [one for one in endpoints if one[0].startswith("/api/v1/")]


def complete(
    result: dict[str, Any], generator: object, request: object, public: bool
) -> dict[str, Any]:
    """Add the named shapes, the way in, and to each operation its refusals."""
    components = result.setdefault("components", {})
    components["schemas"] = dict(
        sorted(
            {
                **shapes.COMPONENTS,
                **job_shapes.COMPONENTS,
                **past_shapes.COMPONENTS,
                **letter_shapes.COMPONENTS,
                **gate_shapes.COMPONENTS,
            }.items()
        )
    )
    components["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key."}
    }
    for path, methods in result["paths"].items():
        for method, operation in methods.items():
            _add_refusals(operation, path=path, method=method)
    return result


def _add_refusals(operation: dict[str, Any], *, path: str, method: str) -> None:
    codes = [*_ALWAYS, "503"]
    names_runs = path.endswith(("/dead-letters/redrive", "/dead-letters/discard"))
    if "{" in path or names_runs:
        codes.append("404")
    if method in ("post", "put", "patch", "delete"):
        codes += _BODY_REFUSALS
    named = {one["name"]: one for one in operation.get("parameters", [])}
    if "{job_id}" in path or path.endswith(("/redrive", "/retry")):
        codes.append("410")
    if path.endswith("/next"):
        codes.append("422")
    if (method, path) in _UNDER_QUOTA:
        codes.append("429")
    if "If-Match" in named:
        codes.append("412")
        codes += ["428"] if named["If-Match"].get("required") else []
    if "Idempotency-Key" in named or ("{" in path and method != "get"):
        codes.append("409")
    operation["responses"]["414"] = {
        "description": "The address is too long; the server itself says so.",
        "content": {"text/html": {"schema": shapes.TEXT}},
    }
    for code in codes:
        operation["responses"].setdefault(
            code,
            {
                "description": _WORDS[code],
                "content": {_MEDIA: {"schema": shapes.Problem}},
            },
        )
    operation["responses"] = dict(sorted(operation["responses"].items()))
