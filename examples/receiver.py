"""A receiver of webhooks that keeps a ledger: each request one JSON line, on disk
before it is answered.

    python -m examples.receiver --port 8799 --ledger .local/receiver.jsonl

The ledger is a second, independent account of what happened. Requests that arrive
together share one fsync, so that a plain disk takes thousands a second. Signatures
are checked by Standard Webhooks with `CHRONO_WEBHOOK_SECRET`. Paths ask for trouble:

    /fail-times/2/…   fails twice for each idempotency key, then succeeds
    /status/503/…     answers with that status
    /sleep-ms/200/…   answers after that long
"""

import argparse
import asyncio
import base64
import binascii
import collections
import contextlib
import dataclasses
import hmac
import http
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

LONGEST_BODY = 2 * 1024 * 1024
TOLERANCE_SECONDS = 300


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class BadRequest(Exception):
    """What arrived is no request that this receiver takes."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def signature_verdict(request: Request, secret: str, now: float) -> str:
    """Return `ok`, `missing`, `stale` or `wrong`, or `unchecked` without a secret."""
    if not secret:
        return "unchecked"
    headers = request.headers
    message_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    signatures = headers.get("webhook-signature", "").split()
    if not (message_id and timestamp and signatures):
        return "missing"
    if not timestamp.isdecimal() or abs(now - int(timestamp)) > TOLERANCE_SECONDS:
        return "stale"
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{message_id}.{timestamp}.".encode() + request.body
    expected = hmac.digest(key, signed, "sha256")
    for text in signatures:
        version, _, encoded = text.partition(",")
        with contextlib.suppress(binascii.Error, ValueError):
            given = base64.b64decode(encoded, validate=True)
            if version == "v1" and hmac.compare_digest(given, expected):
                return "ok"
    return "wrong"


class Ledger:
    """Appends lines to a file; `append` returns once they are on disk."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()

    async def append(self, entry: Mapping[str, object]) -> None:
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((line, written))
        self._wake.set()
        await written

    async def write_forever(self) -> None:
        """Write what has gathered since the last fsync, again and again."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._waiting = self._waiting, []
            if not batch:
                continue
            await asyncio.to_thread(self._write, b"".join(line for line, _ in batch))
            for _, written in batch:
                if not written.done():
                    written.set_result(None)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()
        os.fsync(self._file.fileno())


class Receiver:
    """Answers requests as their paths ask, after the ledger has them."""

    def __init__(self, *, ledger: Ledger, secret: str) -> None:
        self._ledger = ledger
        self._secret = secret
        self._failures: collections.Counter[str] = collections.Counter()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve one connection until the other side or an error ends it."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                while True:
                    request = await read_request(reader)
                    status = await self._answer(request)
                    keep = request.headers.get("connection", "").lower() != "close"
                    writer.write(response(status, keep=keep))
                    await writer.drain()
                    if not keep:
                        break
            except BadRequest as error:
                writer.write(response(error.status, keep=False))
                await writer.drain()
            finally:
                writer.close()

    async def _answer(self, request: Request) -> int:
        received = time.time()
        key = request.headers.get("idempotency-key", "")
        status, delay_ms = self._wish(request.path, key)
        if delay_ms:
            await asyncio.sleep(delay_ms / 1000)
        await self._ledger.append(
            {
                "at_ms": int(received * 1000),
                "method": request.method,
                "path": request.path,
                "status": status,
                "key": key,
                "signature": signature_verdict(request, self._secret, received),
                "headers": {
                    name: value
                    for name, value in request.headers.items()
                    if name.startswith(("chrono-", "webhook-")) or name == "user-agent"
                },
                "body": request.body.decode(errors="replace"),
            }
        )
        return status

    def _wish(self, path: str, key: str) -> tuple[int, int]:
        """Return the status and the delay in milliseconds that the path asks for."""
        match path.split("?")[0].split("/")[1:]:
            case ["fail-times", times, *_] if times.isdecimal():
                self._failures[key] += 1
                if self._failures[key] <= int(times):
                    return 500, 0
                del self._failures[key]
            case ["status", status, *_] if status.isdecimal():
                return int(status), 0
            case ["sleep-ms", delay, *_] if delay.isdecimal():
                return 200, int(delay)
            case _:
                pass
        return 200, 0


async def read_request(reader: asyncio.StreamReader) -> Request:
    """Return the next request; raise BadRequest where it cannot be read."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise BadRequest(431) from None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    try:
        method, path, _ = first.split(" ")
        pairs = (line.split(":", 1) for line in lines)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        length = int(headers.get("content-length", 0))
    except ValueError:
        raise BadRequest(400) from None
    if "transfer-encoding" in headers:
        raise BadRequest(411)
    if not 0 <= length <= LONGEST_BODY:
        raise BadRequest(413)
    body = await reader.readexactly(length)
    return Request(method=method, path=path, headers=headers, body=body)


def response(status: int, *, keep: bool) -> bytes:
    """Return a whole response with a small JSON body."""
    body = json.dumps({"status": status}).encode()
    phrase = "Unknown"
    with contextlib.suppress(ValueError):
        phrase = http.HTTPStatus(status).phrase
    head = (
        f"HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    )
    return head.encode() + body


async def receive(*, port: int, ledger_path: Path, secret: str) -> None:
    """Serve on 127.0.0.1 until SIGINT or SIGTERM; port 0 takes a free one."""
    ledger = Ledger(ledger_path)
    receiver = Receiver(ledger=ledger, secret=secret)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    writing = asyncio.create_task(ledger.write_forever())
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", port, backlog=1024)
    taken = server.sockets[0].getsockname()[1]
    print(f"listening on http://127.0.0.1:{taken}, ledger {ledger_path}", flush=True)
    await stop.wait()
    server.close()
    writing.cancel()


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.receiver")
    parser.add_argument("--port", type=int, default=8799)
    parser.add_argument("--ledger", type=Path, default=Path(".local/receiver.jsonl"))
    options = parser.parse_args(argv)
    secret = os.environ.get("CHRONO_WEBHOOK_SECRET", "")
    try:
        asyncio.run(
            receive(port=options.port, ledger_path=options.ledger, secret=secret)
        )
    except OSError as error:
        print(f"error: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
