"""An HTTP target that does what targets do to those who call them."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Hostile(ThreadingHTTPServer):
    """Answers by path; `received` is what came, `let_go` ends all waiting."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        super().__init__(address, Handler)
        self.received: list[Received] = []
        self.let_go = threading.Event()
        self.busy = threading.Semaphore(0)
        """Released once for each request that is kept waiting."""
        self.broken = threading.Semaphore(0)
        """Released once for each of those that the caller gave up."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Callers that hang up are what these tests are about."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hostile

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (its name)
        pass

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        self.server.received.append(
            Received(
                method=self.command,
                path=self.path,
                headers={k.lower(): v for k, v in self.headers.items()},
                body=self.rfile.read(length),
            )
        )
        what, _, rest = self.path.strip("/").partition("/")
        getattr(self, f"answer_{what}")(rest)

    do_GET = do_POST  # noqa: N815  (the name it is looked up by)

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_status(self, rest: str) -> None:
        self.answer(int(rest), b"\x1b[31m<b>as asked\x00</b>")

    def answer_busy(self, rest: str) -> None:
        self.answer(429, Retry_After=rest)

    def answer_move(self, rest: str) -> None:
        self.answer(307, Location=f"{self.server.url}/status/200")

    def answer_cookie(self, rest: str) -> None:
        self.answer(204, Set_Cookie="session=1; Path=/")

    def answer_hang(self, rest: str) -> None:
        self.server.busy.release()
        self.server.let_go.wait()

    def answer_drip(self, rest: str) -> None:
        """A byte now and then: no single read ever takes long."""
        self.server.busy.release()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        with contextlib.suppress(OSError):
            while not self.server.let_go.wait(0.02):
                self.wfile.write(b".")
        self.server.broken.release()

    def answer_flood(self, rest: str) -> None:
        """A body without end."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):
            while not self.server.let_go.is_set():
                self.wfile.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
        self.server.broken.release()

    def answer_bomb(self, rest: str) -> None:
        """Not gzip at all, though it says so."""
        self.answer(200, b"\x1f\x8b nothing", Content_Encoding="gzip")

    def answer_garbage(self, rest: str) -> None:
        self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        self.close_connection = True

    def answer_silence(self, rest: str) -> None:
        self.close_connection = True

    def answer_cut(self, rest: str) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        self.close_connection = True


@contextlib.contextmanager
def hostile(host: str = "127.0.0.1", port: int = 0) -> Iterator[Hostile]:
    """Lend the target on the loopback, on a free port unless one is named."""
    with Hostile((host, port)) as server:
        thread = threading.Thread(
            target=server.serve_forever, args=(0.01,), daemon=True
        )
        thread.start()
        try:
            yield server
        finally:
            server.let_go.set()
            server.shutdown()
            thread.join()
