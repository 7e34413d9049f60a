"""The demo's Python tasks."""

import logging

import chrono

logger = logging.getLogger(__name__)


@chrono.task(name="examples.heartbeat")
def heartbeat(payload: object) -> str:
    """Say that it ran; what is returned becomes the run's result."""
    logger.info("heartbeat", extra={"facts": {"payload": payload}})
    return "alive"
