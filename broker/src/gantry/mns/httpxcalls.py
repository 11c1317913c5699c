"""What both connections share: calls as requests of httpx, its answers and its errors.

The target of a request is signed as it stands, so it must travel as it stands.  httpx keeps the escapes that calls are
made with; an assert says so for every request.  Answers are read up to ANSWER_MAX bytes and are not decompressed.
Redirects are not followed.

Errors of httpx become those of GantryMQ here and nowhere else: what failed before a connection was there is
UnreachableError, everything later OutcomeUnknownError.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TypeVar

import httpx

from gantry.clock import Clock
from gantry.errors import GantryError, OutcomeUnknownError, RemoteProtocolError, UnreachableError
from gantry.mns.exchange import ANSWER_MAX, AccountSettings, Call, HttpAnswer, signed_headers

T = TypeVar("T")
IDLE_S = 30.0  # then a connection is closed; servers and proxies close theirs later
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def limits(settings: AccountSettings) -> httpx.Limits:
    """Return the bounds of the pool of connections."""
    return httpx.Limits(
        max_connections=settings.connections_max,
        max_keepalive_connections=settings.connections_max,
        keepalive_expiry=IDLE_S,
    )


def trust(settings: AccountSettings) -> ssl.SSLContext | bool:
    """Return what a server's certificate is verified with."""
    if settings.endpoint.startswith("http://"):
        return False  # there is nothing to verify, and reading all certificates takes longer than the first request
    return ssl.create_default_context(cafile=settings.ca_file or None)


def request(
    build: Callable[..., httpx.Request], call: Call[T], settings: AccountSettings, clock: Clock
) -> httpx.Request:
    """Return a signed request; `build` is that of httpx's client, which knows the connection's own headers."""
    within_s = settings.timeout_s + call.wait_s
    time_out = httpx.Timeout(within_s, connect=settings.connect_timeout_s)
    headers = signed_headers(call, settings, clock.now_ms())
    made = build(
        call.method, settings.endpoint + call.target, content=call.body or None, headers=headers, timeout=time_out
    )
    assert made.url.raw_path == call.target.encode(), "the target that travels is the one that was signed"
    return made


def add_bounded(body: bytearray, piece: bytes) -> None:
    """Add a piece of an answer; RemoteProtocolError above ANSWER_MAX."""
    if len(body) + len(piece) > ANSWER_MAX:
        raise RemoteProtocolError(f"the answer has more than {ANSWER_MAX} bytes")
    body += piece


def answer(response: httpx.Response, body: bytearray, began: float, clock: Clock) -> HttpAnswer:
    """Return an answer that was read to its end; `began` is when its request was made, by the clock's monotonic()."""
    elapsed_ms = int((clock.monotonic() - began) * 1000) + 1
    return HttpAnswer(response.status_code, dict(response.headers), bytes(body), clock.now_ms(), elapsed_ms)


def translated(error: httpx.HTTPError, call: Call[T], settings: AccountSettings) -> GantryError:
    """Return our error for one of httpx."""
    path, kind = call.target.partition("?")[0], type(error).__name__
    if isinstance(error, _NOT_SENT):
        return UnreachableError(f"{settings.endpoint}: {kind}: {error}; {call.method} {path} was not sent")
    return OutcomeUnknownError(f"{settings.endpoint}: {kind}: {error}; {call.method} {path} was sent without an answer")
