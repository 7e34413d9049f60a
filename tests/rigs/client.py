"""A client of the API: one request at a time over one connection that is kept."""

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

TIMEOUT_S = 20.0


class Broken(Exception):
    """The connection was refused or broke before the whole answer was there."""


class Refused(Exception):
    """The API answered otherwise than it was to; the text is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer, whole."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any

    @property
    def succeeded(self) -> bool:
        """Whether what was asked is done."""
        return 200 <= self.status < 300


class Client:
    """Asks as one key; a context manager, which closes its connection."""

    def __init__(self, url: str, key: str) -> None:
        self._url = urlsplit(url)
        self._key = key
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request under `/api/v1`; return its answer.

        Raises Broken, after which nobody knows whether it was carried out.
        """
        if self._connection is None:
            self._connection = http.client.HTTPConnection(
                self._url.hostname or "", self._url.port, timeout=TIMEOUT_S
            )
        sent = {"Authorization": f"Bearer {self._key}", **(headers or {})}
        data = None
        if body is not None:
            sent["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        try:
            self._connection.request(method, f"/api/v1{path}", data, sent)
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Broken(f"{type(error).__name__}: {error}") from None
        return Answer(
            status=response.status,
            headers={name.lower(): value for name, value in response.getheaders()},
            body=json.loads(text) if text else None,
        )

    def done(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request that is to succeed; raises Refused with the problem."""
        answer = self.ask(method, path, body, headers)
        if not answer.succeeded:
            raise Refused(f"{method} {path}: {answer.status} {json.dumps(answer.body)}")
        return answer
