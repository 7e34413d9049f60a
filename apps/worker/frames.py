"""Messages between a worker and a process that executes tasks: JSON behind its length.

Nothing but JSON crosses, so neither side can make the other run anything.
"""

import asyncio
import json
import socket
import struct
from typing import Any

LONGEST = 4 * 1024 * 1024
HEAD = struct.Struct("!I")


class BadFrame(ValueError):
    """What came is no message."""


def pack(message: dict[str, Any]) -> bytes:
    """Return a message as it travels. Raises :class:`BadFrame` for one too long."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > LONGEST:
        raise BadFrame("a message is too long")
    return HEAD.pack(len(body)) + body


def receive(channel: socket.socket) -> dict[str, Any] | None:
    """Return the next message, None once the other side is gone; waits for it."""
    head = _exactly(channel, HEAD.size)
    if head is None:
        return None
    body = _exactly(channel, _length(head))
    return None if body is None else _message(body)


async def read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Return the next message, None once the other side is gone.

    Raises :class:`BadFrame` for what is none.
    """
    try:
        head = await reader.readexactly(HEAD.size)
        return _message(await reader.readexactly(_length(head)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        chunk = channel.recv(size - len(data))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def _length(head: bytes) -> int:
    (length,) = HEAD.unpack(head)
    if length > LONGEST:
        raise BadFrame("a message is too long")
    return int(length)


def _message(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise BadFrame("a message is not JSON") from None
    if not isinstance(message, dict):
        raise BadFrame("a message is no object")
    return message
