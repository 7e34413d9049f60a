"""The task that the browser's job calls."""

from typing import Any

import chrono


@chrono.task(name="browser.greet")
def greet(payload: Any) -> dict[str, Any]:
    """Return a greeting."""
    return {"greeted": payload["name"]}
