"""A network between clients and a server that can fail: cut, slow, broken, deaf.

It is a TCP relay on a thread of its own, so both ends see what they would see of a bad
network: bytes that come late, or never, over connections that nobody closed.
"""

import asyncio
import contextlib
import math
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg

CHUNK = 65_536
ANSWER_KEPT = 4_096
LOOK_EVERY_S = 0.02
LINGER_NOT = struct.pack("ii", 1, 0)
LINE_HOLDS, PACKET = 8_192, 536
NAME = b"application_name\0"
BIND = b"B"
"""What a message with a statement's values begins with."""


@dataclass(slots=True, eq=False)
class Way:
    """One direction of a link."""

    source: asyncio.StreamReader
    sink: asyncio.StreamWriter
    open: asyncio.Event = field(default_factory=asyncio.Event)
    deaf: bool = False
    """Whether what comes is thrown away."""
    held: int = 0
    """How many bytes wait, or waited, for a release."""
    trap: float = math.inf
    """So many bytes of a statement's values have all links held, these bytes first."""
    room: float = math.inf
    """How many bytes more are taken from the source."""
    passed: int = 0
    """How many bytes were passed on."""
    last: bytes = b""
    """The end of them."""


@dataclass(slots=True, eq=False)
class Link:
    """One connection."""

    name: str
    """The application's, by its start-up packet."""
    to_server: Way
    to_client: Way

    def reset(self) -> None:
        """Break both sides off, as a router does that forgot them."""
        for way in (self.to_server, self.to_client):
            raw = way.sink.get_extra_info("socket")
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
            way.sink.transport.abort()


class Network:
    """What lies between some clients and the server at ``url``; a context manager."""

    def __init__(self, url: str) -> None:
        parts = psycopg.conninfo.conninfo_to_dict(url)
        self._server = str(parts["host"]), int(str(parts["port"]))
        self._loop = asyncio.new_event_loop()
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._held_later = False
        self._room_later: dict[str, int] = {}
        self._trapped = threading.Event()
        self._trap_later = False
        self._line = asyncio.Lock()
        self.delay_s = 0.0
        """How much longer each direction takes."""
        self.bytes_a_second = 0.0
        """How much both directions carry together; 0 is no bound."""
        self.asked: list[float] = []
        """When each connection was asked for, by the monotonic clock."""
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        port = self._do(self._listen())
        self.url = (
            f"postgres://{parts['user']}@127.0.0.1:{port}/{parts['dbname']}"
            "?sslmode=disable&gssencmode=disable"
        )
        """The server's address by way of here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def links(self, name: str = "") -> list[Link]:
        """Return the links there are, or those of applications whose name has this."""
        return [link for link in list(self._links) if name in link.name]

    def hold(
        self, *, to_server: bool = True, to_client: bool = True, later: bool = True
    ) -> list[Link]:
        """Pass nothing on and close nothing; what comes is kept for the release.

        Later connections are held as well unless told. Returns the links held.
        """

        def hold() -> list[Link]:
            self._held_later = later
            for link in self._links:
                _shut(link.to_server, to_server)
                _shut(link.to_client, to_client)
            return list(self._links)

        return self._call(hold)

    def trap(self, name: str, size: int, *, later: bool = True) -> None:
        """Hold everything, and later links unless told, as soon as one of these
        applications sends a statement's values, so many bytes at once, which are held
        themselves.

        A statement's text, which is sent once and changes nothing, is let through.
        """

        def trap() -> None:
            self._trap_later = later
            for link in self.links(name):
                link.to_server.trap = size

        self._trapped.clear()
        self._call(trap)

    def wait_trapped(self, seconds: float) -> bool:
        """Wait until a trap has sprung; return whether it has."""
        return self._trapped.wait(seconds)

    def release(self) -> None:
        """Pass on what was held, in its order."""

        def release() -> None:
            self._held_later = False
            self._room_later.clear()
            for link in self._links:
                for way in (link.to_server, link.to_client):
                    way.room = math.inf
                    way.open.set()

        self._call(release)

    def choke(self, name: str, room: int) -> None:
        """Break these applications' links, and take only so much from the server for
        each new one.

        What it has to say beyond that stays with the server, until the release. On a
        link that is new its kernel takes little of it.
        """

        def choke() -> None:
            self._room_later[name] = room
            for link in self.links(name):
                link.reset()

        self._call(choke)

    def deafen(self, name: str) -> int:
        """Throw away what the server says on these applications' links; return how many
        links that is."""

        def deafen() -> int:
            links = self.links(name)
            for link in links:
                link.to_client.deaf = True
            return len(links)

        return self._call(deafen)

    def reset(self, share: float, chance: random.Random) -> int:
        """Break off that share of the links, each by chance; return how many."""

        def reset() -> int:
            links = [link for link in self._links if chance.random() < share]
            for link in links:
                link.reset()
            return len(links)

        return self._call(reset)

    async def _listen(self) -> int:
        server = await asyncio.start_server(self._admit, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        self._listener = server
        return port

    async def _admit(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.asked.append(time.monotonic())
        try:
            first = await _read_start(reader)
            server_reader, server_writer = await self._dial()
        except (OSError, asyncio.IncompleteReadError):
            writer.close()
            return
        link = Link(
            name=_name_in(first),
            to_server=Way(source=reader, sink=server_writer),
            to_client=Way(source=server_reader, sink=writer),
        )
        link.to_client.room = self._room_later.get(link.name, math.inf)
        for way in (link.to_server, link.to_client):
            _shut(way, self._held_later)
        self._links.add(link)
        there = self._begin(self._carry(link.to_server, first))
        back = self._begin(self._carry(link.to_client, b""))
        await asyncio.wait([there, back])
        self._links.discard(link)
        writer.close()
        server_writer.close()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the server; while there is a choke, by a line that holds little.

        As wide as loopback is, the server's kernel would take an answer of megabytes,
        and a choke would stop nobody.
        """
        if not self._room_later:
            return await asyncio.open_connection(*self._server)
        line = socket.socket()
        line.setblocking(False)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LINE_HOLDS)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, PACKET)
        await self._loop.sock_connect(line, self._server)
        return await asyncio.open_connection(sock=line, limit=LINE_HOLDS)

    async def _carry(self, way: Way, first: bytes) -> None:
        """Pass on what comes, in its order, and its end."""
        coming: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        if first:
            coming.put_nowait((self._loop.time(), first))
        reading = self._begin(self._read(way, coming))
        try:
            while data := await self._next(way, coming):
                if not way.deaf:
                    way.passed += len(data)
                    way.last = (way.last + data)[-ANSWER_KEPT:]
                    way.sink.write(data)
                    await way.sink.drain()
        except OSError:
            pass
        finally:
            reading.cancel()
            # Whoever hung up may still be answered what was asked before.
            with contextlib.suppress(OSError):
                way.sink.write_eof()

    async def _next(
        self, way: Way, coming: asyncio.Queue[tuple[float, bytes]]
    ) -> bytes:
        arrived, data = await coming.get()
        late = arrived + self.delay_s - self._loop.time()
        if late > 0:
            await asyncio.sleep(late)
        if self.bytes_a_second:
            async with self._line:
                await asyncio.sleep(len(data) / (self.bytes_a_second or math.inf))
        if len(data) >= way.trap and data.startswith(BIND):
            self._spring()
        if not way.open.is_set():
            way.held += len(data)
            await way.open.wait()
        return data

    def _spring(self) -> None:
        self._held_later = self._trap_later
        for link in self._links:
            link.to_server.trap = math.inf
            for way in (link.to_server, link.to_client):
                _shut(way, True)
        self._trapped.set()

    async def _read(self, way: Way, coming: asyncio.Queue[tuple[float, bytes]]) -> None:
        data = b"?"
        while data:
            while way.room <= 0:
                await asyncio.sleep(LOOK_EVERY_S)
            try:
                data = await way.source.read(int(min(CHUNK, way.room)))
            except OSError:
                data = b""
            way.room -= len(data)
            coming.put_nowait((self._loop.time(), data))

    async def _end(self) -> None:
        self._listener.close()
        for link in self._links:
            link.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _call[T](self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._do(call())

    def _do[T](self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)


def _shut(way: Way, shut: bool) -> None:
    if shut:
        way.open.clear()
    else:
        way.open.set()


async def _read_start(reader: asyncio.StreamReader) -> bytes:
    """Return the packet that a session starts with."""
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head) - 4)


def _name_in(start: bytes) -> str:
    _, found, rest = start.partition(NAME)
    return rest.partition(b"\0")[0].decode() if found else ""
