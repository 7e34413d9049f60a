"""A relay in front of a server that answers as a connection pooler would.

It passes everything on, but puts a backend pid of its own into the start-up answer.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import psycopg

INVENTED_PID = 4_194_303


@contextlib.contextmanager
def pooled(url: str) -> Iterator[str]:
    """Lend the address of a relay in front of the server at ``url``."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=_admit, args=(door, parts), daemon=True).start()
        yield psycopg.conninfo.make_conninfo(
            url,
            host="127.0.0.1",
            port=door.getsockname()[1],
            sslmode="disable",
            gssencmode="disable",
        )
        # Ends a blocked accept(), which closing alone does not.
        with contextlib.suppress(OSError):
            door.shutdown(socket.SHUT_RDWR)


def _admit(door: socket.socket, parts: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = door.accept()
            server = _call(str(parts["host"]), int(str(parts.get("port") or 5432)))
            threading.Thread(target=_pass, args=(client, server), daemon=True).start()
            threading.Thread(target=_answer, args=(server, client), daemon=True).start()


def _call(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    server = socket.socket(socket.AF_UNIX)
    server.connect(f"{host}/.s.PGSQL.{port}")
    return server


def _pass(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError), source, sink:
        while data := source.recv(65_536):
            sink.sendall(data)


def _answer(server: socket.socket, client: socket.socket) -> None:
    """Pass messages on one by one until BackendKeyData, whose pid is replaced."""
    with contextlib.suppress(OSError, struct.error), server.makefile("rb") as stream:
        kind = b""
        while kind != b"K":
            kind = stream.read(1)
            (length,) = struct.unpack("!I", stream.read(4))
            body = stream.read(length - 4)
            if kind == b"K":
                body = struct.pack("!I", INVENTED_PID) + body[4:]
            client.sendall(kind + struct.pack("!I", length) + body)
        while data := stream.read1(65_536):
            client.sendall(data)
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
