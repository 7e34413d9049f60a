"""An HTTP target that does what targets do to those who call them."""

import contextlib
import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

EXPIRED = Path(__file__).with_name("expired.pem")
"""A key, and a certificate of its own for 127.0.0.1 that was good for a day of 2020."""
PACKED = gzip.compress(bytes(1 << 20)) * 1024
"""A gigabyte of nothing, in one megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request as it arrived; header names in lower case."""

    at: float
    """When, in seconds of the machine's clock."""
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

    def expire(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(EXPIRED)
        self.socket = context.wrap_socket(self.socket, server_side=True)

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
                at=time.time(),
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

    def answer_gzip(self, rest: str) -> None:
        """A gigabyte in very few bytes."""
        self.answer(200, PACKED, Content_Encoding="gzip")

    def answer_halt(self, rest: str) -> None:
        """A head, and no body behind it."""
        self.server.busy.release()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        self.server.let_go.wait()

    def answer_half(self, rest: str) -> None:
        """An end of what is said, in the middle of it, with an open ear."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        self.connection.shutdown(socket.SHUT_WR)
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.recv(1)

    def answer_metadata(self, rest: str) -> None:
        self.answer(301, Location="http://169.254.169.254/latest/meta-data/")

    def answer_garbage(self, rest: str) -> None:
        self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        self.close_connection = True

    def answer_silence(self, rest: str) -> None:
        self.close_connection = True

    def answer_cut(self, rest: str) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        self.close_connection = True


@contextlib.contextmanager
def deaf() -> Iterator[str]:
    """Lend the address of a target that lets nobody connect and refuses nobody."""
    with contextlib.ExitStack() as closing:
        server = closing.enter_context(socket.create_server(("127.0.0.1", 0)))
        server.listen(0)
        # Its queue holds one or two that nobody fetches; who comes later is ignored.
        for _ in range(4):
            caller = closing.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@contextlib.contextmanager
def hostile(
    host: str = "127.0.0.1", port: int = 0, *, expired: bool = False
) -> Iterator[Hostile]:
    """Lend the target on the loopback, on a free port unless one is named.

    Where it is ``expired`` it speaks TLS, with a certificate that is no longer good.
    """
    with Hostile((host, port)) as server:
        if expired:
            server.expire()
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
