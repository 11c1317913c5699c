"""The two ways to send a call, on asyncio and blocking: httpx with a bounded pool of connections.

The target of a request is signed as it stands, so it must travel as it stands.  httpx keeps the escapes that calls are
made with; an assert says so for every request.  Answers are read up to ANSWER_MAX bytes and are not decompressed.
Redirects are not followed.

Errors of httpx become those of GantryMQ here and nowhere else: what failed before a connection was there is
UnreachableError, everything later OutcomeUnknownError.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

import httpx

from gantry.clock import Clock, SystemClock
from gantry.errors import GantryError, OutcomeUnknownError, RemoteProtocolError, UnreachableError
from gantry.mns.exchange import ANSWER_MAX, AccountSettings, Call, HttpAnswer, pause_before, signed_headers

T = TypeVar("T")
IDLE_S = 30.0  # then a connection is closed; servers and proxies close theirs later
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class AsyncConnection:
    """Calls on asyncio; `perform` may run many times at once, `connections_max` of them on the wire."""

    def __init__(self, settings: AccountSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._client = httpx.AsyncClient(limits=_limits(settings), verify=_trust(settings), trust_env=False)

    async def perform(self, call: Call[T]) -> T:
        """Send a call, again where that is safe, and return what its answer says; raises GantryError."""
        attempt = 1
        while True:
            try:
                return call.read(await self._exchange(call))
            except GantryError as error:
                attempt += 1
                pause_s = pause_before(call, attempt, error, self._settings.attempts)
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """End all connections."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _exchange(self, call: Call[T]) -> HttpAnswer:
        began = self._clock.monotonic()
        request = _request(self._client.build_request, call, self._settings, self._clock)
        try:
            response = await self._client.send(request, stream=True)
            try:
                body = bytearray()
                async for piece in response.aiter_raw():
                    _add(body, piece)
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise _translated(error, call, self._settings) from error
        return _answer(response, body, began, self._clock)


class BlockingConnection:
    """Calls that block; threads may share it, `connections_max` of their calls are on the wire at once."""

    def __init__(self, settings: AccountSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._client = httpx.Client(limits=_limits(settings), verify=_trust(settings), trust_env=False)

    def perform(self, call: Call[T]) -> T:
        """Send a call, again where that is safe, and return what its answer says; raises GantryError."""
        attempt = 1
        while True:
            try:
                return call.read(self._exchange(call))
            except GantryError as error:
                attempt += 1
                pause_s = pause_before(call, attempt, error, self._settings.attempts)
                if pause_s is None:
                    raise
                time.sleep(pause_s)

    def close(self) -> None:
        """End all connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exchange(self, call: Call[T]) -> HttpAnswer:
        began = self._clock.monotonic()
        request = _request(self._client.build_request, call, self._settings, self._clock)
        try:
            response = self._client.send(request, stream=True)
            try:
                body = bytearray()
                for piece in response.iter_raw():
                    _add(body, piece)
            finally:
                response.close()
        except httpx.HTTPError as error:
            raise _translated(error, call, self._settings) from error
        return _answer(response, body, began, self._clock)


def _limits(settings: AccountSettings) -> httpx.Limits:
    return httpx.Limits(
        max_connections=settings.connections_max,
        max_keepalive_connections=settings.connections_max,
        keepalive_expiry=IDLE_S,
    )


def _trust(settings: AccountSettings) -> ssl.SSLContext | bool:
    if settings.endpoint.startswith("http://"):
        return False  # there is nothing to verify, and reading all certificates takes longer than the first request
    return ssl.create_default_context(cafile=settings.ca_file or None)


def _request(
    build: Callable[..., httpx.Request], call: Call[T], settings: AccountSettings, clock: Clock
) -> httpx.Request:
    limits = httpx.Timeout(
        settings.timeout_s + call.wait_s, connect=settings.connect_timeout_s, pool=settings.timeout_s + call.wait_s
    )
    headers = signed_headers(call, settings, clock.now_ms())
    request = build(
        call.method, settings.endpoint + call.target, content=call.body or None, headers=headers, timeout=limits
    )
    assert request.url.raw_path == call.target.encode(), "the target that travels is the one that was signed"
    return request


def _add(body: bytearray, piece: bytes) -> None:
    if len(body) + len(piece) > ANSWER_MAX:
        raise RemoteProtocolError(f"the answer has more than {ANSWER_MAX} bytes")
    body += piece


def _answer(response: httpx.Response, body: bytearray, began: float, clock: Clock) -> HttpAnswer:
    elapsed_ms = int((clock.monotonic() - began) * 1000) + 1
    return HttpAnswer(response.status_code, dict(response.headers), bytes(body), clock.now_ms(), elapsed_ms)


def _translated(error: httpx.HTTPError, call: Call[T], settings: AccountSettings) -> GantryError:
    path, kind = call.target.partition("?")[0], type(error).__name__
    if isinstance(error, _NOT_SENT):
        return UnreachableError(f"{settings.endpoint}: {kind}: {error}; {call.method} {path} was not sent")
    return OutcomeUnknownError(f"{settings.endpoint}: {kind}: {error}; {call.method} {path} was sent without an answer")
