"""Targets that are URLs: one signed request, judged by its status.

The deadline spans the whole exchange, the body's last byte included. Redirects are not
followed, proxies of the environment not used, answers not unpacked, cookies not kept.
"""

import asyncio
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp

import chrono
from apps.runs.store import Target
from apps.runtime.clock import Clock
from apps.worker import egress
from apps.worker.execution import Call, Execution, Outcome, Success
from apps.worker.handlers.request import Request, request_of
from apps.worker.signature import sign
from apps.worker.targets import Refused
from chrono.logs import one_line
from chrono.rules.errors import BadInstant, BadValue
from chrono.rules.instants import Millis, format_instant, to_millis
from chrono.rules.keys import scheduled_for_of
from chrono.rules.retry import Failure

BODY_LIMIT = 65_536
EXCERPT = 500
CONNECT_S = 10.0
REFUSED = "refused: only public https addresses and CHRONO_EGRESS_ALLOW are open"
THROTTLED = frozenset({408, 425, 429})
QUIET = frozenset({200, 204})
"""Statuses that leave no result: the plain success, cheapest to settle."""


class AddressRefused(OSError):
    """The target's address is not one that Chrono may connect to."""


class Transport:
    """The HTTP sessions of a process: one for TLS, one for plain http, both guarded.

    Make it on the loop that uses it, and close it there.
    """

    def __init__(self, openings: tuple[egress.Opening, ...]) -> None:
        self._openings = openings
        self._tls = self._session(plain=False)
        self._plain = self._session(plain=True)

    def session(self, *, plain: bool) -> aiohttp.ClientSession:
        """Return the session for connections with or without TLS."""
        return self._plain if plain else self._tls

    async def close(self) -> None:
        """Close every connection."""
        await self._tls.close()
        await self._plain.close()

    def _session(self, *, plain: bool) -> aiohttp.ClientSession:
        def guarded(info: aiohttp.AddrInfoType) -> socket.socket:
            family, kind, protocol, _, address = info
            host, port = str(address[0]), int(address[1])
            if not egress.may_connect(host, port, openings=self._openings, plain=plain):
                raise AddressRefused(REFUSED)
            return socket.socket(family, kind, protocol)

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=guarded),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """One URL, its headers, body and deadline."""

    request: Request
    transport: Transport
    clock: Clock
    key: bytes | None

    async def run(self, execution: Execution) -> Outcome:
        """Send the request and judge the answer."""
        request = self.request
        session = self.transport.session(plain=request.plain)
        try:
            async with (
                asyncio.timeout(request.timeout / 1000),
                session.request(
                    request.method,
                    request.url,
                    data=request.body or None,
                    headers=self._headers(execution),
                    allow_redirects=False,
                ) as answer,
            ):
                body = await read_capped(answer)
                return verdict(answer.status, answer.headers, body, self.clock.now())
        except aiohttp.ConnectionTimeoutError:
            return Failure("connect_failure", f"no connection within {CONNECT_S:g} s")
        except TimeoutError:
            return Failure("timeout", f"no complete answer within {request.timeout} ms")
        except aiohttp.InvalidURL:
            return Failure("bad_target", "the URL is not valid")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return failure_of(error)

    def _headers(self, execution: Execution) -> dict[str, str]:
        lease, run = execution.lease, str(execution.lease.run_id)
        headers = {
            **self.request.headers,
            "User-Agent": f"Chrono/{chrono.__version__}",
            "Accept-Encoding": "identity",
            "Idempotency-Key": run,
            "Chrono-Run-Id": run,
            "Chrono-Fence": str(lease.fence),
            "Chrono-Attempt": str(lease.attempt),
            "Chrono-Scheduled-For": format_instant(scheduled_for_of(lease.run_id)),
        }
        if execution.missed is not None:
            headers["Chrono-Missed-From"] = format_instant(execution.missed.first)
            headers["Chrono-Missed-To"] = format_instant(execution.missed.last)
            headers["Chrono-Missed-Count"] = str(execution.missed.count)
        if self.key is not None:
            now = self.clock.now() // 1000
            headers["webhook-id"] = run
            headers["webhook-timestamp"] = str(now)
            headers["webhook-signature"] = sign(
                self.key, message_id=run, timestamp=now, body=self.request.body
            )
        return headers


def prepare_http(
    target: Target, *, transport: Transport, clock: Clock, key: bytes | None
) -> Call:
    """Return what calls the URL that a target names."""
    try:
        request = request_of(target.target, body_of(target.payload))
    except BadValue as error:
        return Refused(error.message)
    return HttpCall(request=request, transport=transport, clock=clock, key=key)


def body_of(payload: Any) -> bytes:
    """Return the body that carries a payload; none for no payload."""
    if payload is None:
        return b""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


async def read_capped(answer: aiohttp.ClientResponse) -> bytes:
    """Return the first bytes of the body; letting go of a longer one cuts it off."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > BODY_LIMIT:
            break
    return bytes(body[:BODY_LIMIT])


def verdict(
    status: int, headers: Mapping[str, str], body: bytes, now: Millis
) -> Outcome:
    """Judge an answer: 2xx is success, everything else a failure of its kind."""
    if 200 <= status < 300:
        return Success(result=None if status in QUIET else {"status": status})
    excerpt = one_line(body[:EXCERPT].decode(errors="replace"))
    message = f"HTTP {status}: {excerpt}" if excerpt else f"HTTP {status}"
    retry_after = retry_after_of(headers.get("Retry-After"), now)
    if 300 <= status < 400:
        why = f"HTTP {status}: redirects are not followed; name the final address"
        return Failure("bad_target", why, status=status)
    if status in THROTTLED:
        return Failure("throttled", message, retry_after=retry_after, status=status)
    kind = "4xx" if 400 <= status < 500 else "5xx"
    return Failure(kind, message, retry_after=retry_after, status=status)


def retry_after_of(text: str | None, now: Millis) -> Millis | None:
    """Return the wait in milliseconds that Retry-After asks for; None for nonsense."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text[:9]) * 1000
    try:
        return max(0, to_millis(parsedate_to_datetime(text)) - now)
    except (ValueError, TypeError, BadInstant):
        return None


def failure_of(error: Exception) -> Failure:
    """Return why there was no answer, without the addresses behind the name."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    # Tries at several addresses come back as one error with the words of each.
    if isinstance(cause, AddressRefused) or REFUSED in str(cause):
        return Failure("bad_target", f"the target's address is {REFUSED}")
    return Failure("connect_failure", _words(error, cause))


def _words(error: Exception, cause: BaseException) -> str:
    match error:
        case aiohttp.ClientConnectorDNSError():
            return "the host name does not resolve"
        case aiohttp.ClientConnectorCertificateError():
            return "the TLS certificate is not trusted"
        case aiohttp.ClientSSLError():
            return "TLS could not be agreed on"
        case aiohttp.ServerDisconnectedError():
            return "the target closed the connection without an answer"
        case aiohttp.ClientPayloadError():
            return "the answer broke off"
        case aiohttp.ClientResponseError() | ValueError():
            return "the answer was not valid HTTP"
        case _:
            code = cause.errno if isinstance(cause, OSError) else None
            known = code is not None and code > 0
            return os.strerror(code) if code and known else "the connection failed"
