"""What the models are called on the pages."""

from typing import Any

NAMES = {"apikey": "API keys", "auditevent": "Audit", "user": "People"}


def plural(opts: Any) -> str:
    """Return what a list of these is called."""
    return NAMES.get(opts.model_name, str(opts.verbose_name_plural).capitalize())
