"""One call as a value: what is sent, how the answer is read, and when it may be sent once more.

A call is tried again after a pause when the connection could not be made: nothing was sent then.  After a lost answer,
or a status of 500 and more, what the server did is unknown.  Then only calls with `Repeat.SAFE` are tried again; the
caller of any other gets OutcomeUnknownError or ServiceError and decides.  `calls` says for each call which it is, and
why.  The pauses double from PAUSE_S; they are short, because a caller waits.

The date of an answer is the server's clock, in whole seconds, rounded down.  What is computed from it is an earliest or
a latest instant, never a middle one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from enum import Enum
from typing import Generic, TypeVar

from gantry.errors import ConfigError, GantryError, OutcomeUnknownError, RemoteProtocolError, UnreachableError
from gantry.mns.documents import XmlNode, parse
from gantry.mns.errors import ServiceError, service_error
from gantry.mns.signature import authorization, text_to_sign

VERSION = "2015-06-06"
CONTENT_TYPE = "text/xml;charset=UTF-8"
# 16 messages of 256 KiB, each character escaped by three, and room for the elements around them.
ANSWER_MAX = 16 << 20
PAUSE_S = 0.1
T = TypeVar("T")


class Repeat(Enum):
    """What another attempt after an unknown outcome does."""

    SAFE = "nothing that a program notices"
    UNSENT = "an effect twice; only what was not sent at all is sent again"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status, headers with names in lower case, the body of at most ANSWER_MAX bytes.

    `received_ms` is this machine's wall clock when it came, `elapsed_ms` the time since this attempt began.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    received_ms: int = 0
    elapsed_ms: int = 0

    def document(self) -> XmlNode:
        """Return the root of the body; RemoteProtocolError when it is no XML."""
        return parse(self.body)

    @property
    def earliest_ms(self) -> int:
        """When the server can have begun with the request, at the earliest and by its own clock."""
        return self._answered_ms() - self.elapsed_ms

    @property
    def latest_ms(self) -> int:
        """When the server can have answered, at the latest and by its own clock."""
        return self._answered_ms() + 999

    def _answered_ms(self) -> int:
        try:
            return int(parsedate_to_datetime(self.headers.get("date", "")).timestamp() * 1000)
        except ValueError:  # no date that can be read: this machine's clock has to do
            return self.received_ms


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request and the function that reads its answer; `wait_s` is how long the server may hold the answer."""

    method: str
    target: str
    read: Callable[[HttpAnswer], T]
    repeat: Repeat
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    wait_s: int = 0


@dataclass(frozen=True, slots=True)
class AccountSettings:
    """Where the server is, who asks, and the limits of the connections.

    Without an access id no request is signed.  `attempts` counts the first one.  `timeout_s` is for one answer, on top
    of what a long poll waits.
    """

    endpoint: str
    access_id: str = ""
    secret: str = field(default="", repr=False)
    connections_max: int = 32
    connect_timeout_s: float = 5.0
    timeout_s: float = 30.0
    attempts: int = 4
    ca_file: str = ""  # certificates of authorities for https; empty: those of the system

    def __post_init__(self) -> None:
        if not self.endpoint.startswith(("http://", "https://")) or self.endpoint.count("/") != 2:
            raise ConfigError(
                f"endpoint {self.endpoint!r}: expected http://HOST:PORT or https://HOST:PORT without a path"
            )
        if bool(self.access_id) != bool(self.secret):
            raise ConfigError("an access id needs its secret, and a secret its access id")
        if self.connections_max < 1 or self.attempts < 1 or self.timeout_s <= 0 or self.connect_timeout_s <= 0:
            raise ConfigError("connections_max, attempts and the time limits must be above 0")


def signed_headers(call: Call[T], settings: AccountSettings, now_ms: int) -> dict[str, str]:
    """Return all headers of a request but those of the connection; the caller must send the target as it is."""
    headers = {
        "date": formatdate(now_ms / 1000, usegmt=True),
        "x-mns-version": VERSION,
        "content-type": CONTENT_TYPE,
        "accept-encoding": "identity",
        **dict(call.headers),
    }
    if settings.access_id:
        text = text_to_sign(call.method, call.target, headers)
        headers["authorization"] = authorization(settings.access_id, settings.secret, text)
    return headers


def pause_before(call: Call[T], attempt: int, error: GantryError, attempts: int) -> float | None:
    """Return the seconds until attempt number `attempt` (the first is 1) may begin, or None when `error` is final."""
    if attempt > attempts:
        return None
    unknown = isinstance(error, OutcomeUnknownError) or (isinstance(error, ServiceError) and error.is_temporary)
    if isinstance(error, UnreachableError) or (unknown and call.repeat is Repeat.SAFE):
        return float(PAUSE_S * 2 ** (attempt - 2))
    return None


def refused(answer: HttpAnswer) -> GantryError:
    """Return the error that an answer with a status of 400 or more describes."""
    request_id = answer.headers.get("x-mns-request-id", "")
    try:
        found = answer.document()
    except RemoteProtocolError:
        return service_error(answer.status, "Unreadable", "the answer has no document that can be read", request_id)
    code, text = found.get("Code") or "Unknown", found.get("Message") or ""
    return service_error(answer.status, code, text, found.get("RequestId") or request_id)
