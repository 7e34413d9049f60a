"""Whether a run that ended well did anything: the items that it says it did."""

from __future__ import annotations


def too_few(result: object, *, least: int) -> str | None:
    """Return what is wrong with a result by its `items_ok`, None where it will do.

    Nothing is asked of any result where `least` is 0.
    """
    if not least:
        return None
    done = result.get("items_ok") if isinstance(result, dict) else None
    if type(done) is not int:
        return (
            f"It returned, but not how much it did: its result needs `items_ok`, a "
            f"whole number, of which {least} is the least that is a success."
        )
    if done < least:
        return f"It returned, but did {done} items; fewer than {least} are no success."
    return None
