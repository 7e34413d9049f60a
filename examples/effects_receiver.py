"""A receiver of webhooks that has each effect once, and refuses whoever was replaced.

    python -m examples.effects_receiver --port 8800 --file .local/effects.db

It shows what `docs/effects.md` asks of a receiver. Its effect is a row of the table
`effect`; what takes its place, a booking or a payment, goes into the same transaction,
or is sent on with the key. SQLite keeps it with `PRAGMA synchronous=FULL`, so that an
answer means that the effect is on disk.

Which keys are being worked on is known in memory: if this receiver is killed meanwhile,
its transaction is rolled back and the key is free again. Work that does not fit into
one transaction needs a lease of its own in the key's row.

    /sleep-ms/200/…   works that long on the effect, as a slow bank would
    /fail/…           fails after the effect was begun: nothing of it stays
"""

import argparse
import contextlib
import json
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LONGEST_BODY = 1024 * 1024
SCHEMA = """
CREATE TABLE IF NOT EXISTS seen (
    key TEXT PRIMARY KEY, fence INTEGER NOT NULL, attempt INTEGER NOT NULL,
    status INTEGER, answer TEXT
);
CREATE TABLE IF NOT EXISTS effect (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, body TEXT NOT NULL
);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is asked for, by whom."""

    key: str
    fence: int
    attempt: int
    path: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A status with a small JSON body; ``again`` seconds later it may be another."""

    status: int
    body: str
    replayed: bool = False
    again: int | None = None


class Failed(Exception):
    """The effect was begun and could not be had."""


class Effects:
    """The effects and the keys under which they were had, in one file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        with self._open() as conn:
            conn.executescript(SCHEMA)

    def receive(self, order: Order) -> Answer:
        """Have the effect of an order, or say why not."""
        with self._lock:
            known = self._known(order)
            if known is not None:
                return known
            self._busy.add(order.key)
        try:
            return self._have(order)
        except Failed:
            return _refusal(500, "the effect could not be had; nothing of it stays")
        finally:
            with self._lock:
                self._busy.discard(order.key)

    def _known(self, order: Order) -> Answer | None:
        """Return the answer to an order whose effect is not to be had now."""
        with self._open() as conn:
            conn.execute("BEGIN IMMEDIATE")
            row = conn.execute(
                "SELECT fence, attempt, status, answer FROM seen WHERE key = ?",
                [order.key],
            ).fetchone()
            if row is not None and (order.fence, order.attempt) < (row[0], row[1]):
                # Whoever sends this was replaced, and does not know it yet.
                return _refusal(409, "a later attempt of this run was here already")
            conn.execute(
                "INSERT INTO seen (key, fence, attempt) VALUES (?, ?, ?) "
                "ON CONFLICT (key) DO UPDATE SET fence = ?, attempt = ?",
                [order.key, *[order.fence, order.attempt] * 2],
            )
            conn.execute("COMMIT")
        if row is not None and row[2] is not None:
            return Answer(status=row[2], body=row[3], replayed=True)
        if order.key in self._busy:
            # 429 and not 409: any other 4xx would be taken as final.
            busy = _refusal(429, "another request with this key is being worked on")
            return Answer(status=busy.status, body=busy.body, again=1)
        return None

    def _have(self, order: Order) -> Answer:
        """Have the effect and keep the answer, both or neither."""
        with self._open() as conn:
            if order.path.startswith("/sleep-ms/"):
                time.sleep(int(order.path.split("/")[2]) / 1000)
            conn.execute("BEGIN IMMEDIATE")
            cursor = conn.execute(
                "INSERT INTO effect (key, body) VALUES (?, ?)", [order.key, order.body]
            )
            if order.path.startswith("/fail/"):
                raise Failed
            answer = Answer(status=201, body=json.dumps({"effect": cursor.lastrowid}))
            conn.execute(
                "UPDATE seen SET status = ?, answer = ? WHERE key = ?",
                [answer.status, answer.body, order.key],
            )
            conn.execute("COMMIT")
        return answer

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        conn = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        try:
            conn.execute("PRAGMA journal_mode=WAL")
            conn.execute("PRAGMA synchronous=FULL")
            yield conn
        finally:
            conn.close()  # Rolls back what is not committed.


def _refusal(status: int, why: str) -> Answer:
    return Answer(status=status, body=json.dumps({"error": why}))


class Handler(BaseHTTPRequestHandler):
    """Reads an order from a request."""

    protocol_version = "HTTP/1.1"
    effects: Effects

    def do_POST(self) -> None:
        """Answer one request."""
        try:
            order = self._order()
        except ValueError:
            self.close_connection = True
            self._send(_refusal(400, "Idempotency-Key, Chrono-Fence, Chrono-Attempt"))
            return
        self._send(self.effects.receive(order))

    def _order(self) -> Order:
        length = int(self.headers.get("Content-Length", 0))
        key = self.headers.get("Idempotency-Key", "")
        if not key or not 0 <= length <= LONGEST_BODY:
            raise ValueError
        return Order(
            key=key,
            fence=int(self.headers.get("Chrono-Fence", 0)),
            attempt=int(self.headers.get("Chrono-Attempt", 1)),
            path=self.path,
            body=self.rfile.read(length).decode(errors="replace"),
        )

    def _send(self, answer: Answer) -> None:
        body = answer.body.encode()
        with contextlib.suppress(ConnectionError):
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if answer.replayed:
                self.send_header("Idempotency-Replayed", "true")
            if answer.again is not None:
                self.send_header("Retry-After", str(answer.again))
            self.end_headers()
            self.wfile.write(body)

    def handle(self) -> None:
        """Answer the requests of a connection until it ends, however it does."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


class Server(ThreadingHTTPServer):
    """A thread for each connection."""

    request_queue_size = 1024
    daemon_threads = True


def main(argv: list[str] | None = None) -> int:
    """Serve on 127.0.0.1 until SIGINT or SIGTERM; port 0 takes a free one."""
    parser = argparse.ArgumentParser(prog="python -m examples.effects_receiver")
    parser.add_argument("--port", type=int, default=8800)
    parser.add_argument("--file", type=Path, default=Path(".local/effects.db"))
    options = parser.parse_args(argv)
    handler = type("Bound", (Handler,), {"effects": Effects(options.file)})
    try:
        server = Server(("127.0.0.1", options.port), handler)
    except OSError as error:
        print(f"error: {error.strerror or error}", file=sys.stderr)
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(
            number, lambda *_: threading.Thread(target=server.shutdown).start()
        )
    port = server.server_address[1]
    print(f"listening on http://127.0.0.1:{port}, file {options.file}", flush=True)
    server.serve_forever()
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
