"""A call as the server hands it over to what serves it, and its answer.

`target` is the request target exactly as sent: the signature covers it.  `path` and `query` are decoded from it.
Names of query parameters are in lower case, because SDKs differ; of two with one name the last one counts.  Names of
headers are in lower case too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import unquote

from gantry.queues.faults import QueueFaultError

TARGET_CHARACTERS_MAX = 4096
_NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class QueueCall:
    """One request, its body read and its signature checked."""

    method: str
    target: str
    path: tuple[str, ...]  # ("queues", "Q", "messages"); empty for /
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    user: str = ""  # the access id; empty where the server has no users
    host: str = ""  # as the client named the server, with the port


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """Status, XML and headers beside those that every answer has; an empty body is no document at all."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: _NO_HEADERS)


class CallDoor(Protocol):
    """Serves all calls whose path begins with one word; the errors of brokers become error answers."""

    async def serve(self, call: QueueCall) -> CallAnswer:
        """Answer one call."""


def split(target: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return path and query of a request target; QueueFaultError 400 when it is too long or no path."""
    if len(target) > TARGET_CHARACTERS_MAX:
        text = f"the request target has {len(target)} characters, {TARGET_CHARACTERS_MAX} are allowed"
        raise QueueFaultError(400, "InvalidRequestURL", text)
    path, _, query = relative(target).partition("?")
    if not path.startswith("/"):
        raise QueueFaultError(400, "InvalidRequestURL", "the request target does not begin with a slash")
    words = tuple(unquote(word) if "%" in word else word for word in path.split("/") if word)
    pairs: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        pairs[unquote(name).lower()] = unquote(value)  # not unquote_plus: a handle or a marker may hold a plus
    return words, pairs


def relative(target: str) -> str:
    """Return path and query of a target in absolute form, which clients send through a proxy; others as they are."""
    if target.startswith(("http://", "https://")):
        return "/" + target.split("/", 3)[3] if target.count("/") >= 3 else "/"
    return target
