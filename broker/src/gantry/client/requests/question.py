"""A request together with the way to read its answer, without any I/O.

Every exchange of the client is one `Question[T]`: the asyncio session and the blocking one send its
command, each in its own manner, and hand the reply to `read`.  So what is asked, and what an answer
means, is written once (`questions`, `adminquestions`).

`read` raises RefusedError for a reply that says no, RemoteProtocolError for one that cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gantry.errors import RefusedError, RemoteProtocolError
from gantry.leaves.frames import Command
from gantry.wire import bodies
from gantry.wire.codes import ResponseCode

T = TypeVar("T")
REMARK_CHARACTERS_MAX = 500  # of a refusal's text; Java brokers like to send stack traces


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """What to send, and what to make of the reply."""

    command: Command
    read: Callable[[Command], T]


def require(reply: Command, *allowed: int) -> Command:
    """The reply itself when its code is SUCCESS or allowed; RefusedError otherwise."""
    if reply.code == ResponseCode.SUCCESS or reply.code in allowed:
        return reply
    raise RefusedError(reply.code, (reply.remark or _name_of(reply.code)).strip()[:REMARK_CHARACTERS_MAX])


def nothing(reply: Command) -> None:
    """For questions whose answer is yes or no."""
    require(reply)


def number(reply: Command, name: str) -> int:
    """An integer header field of a reply."""
    try:
        return int(reply.ext[name])
    except KeyError:
        raise RemoteProtocolError(f"reply {reply.code} lacks {name}") from None
    except ValueError:
        raise RemoteProtocolError(
            f"reply {reply.code}: {name} is {reply.ext[name][:40]!r}, expected a number"
        ) from None


def document(reply: Command) -> dict[str, object]:
    """The JSON object in a reply's body."""
    try:
        return bodies.loads_object(reply.body)
    except ValueError as error:
        raise RemoteProtocolError(f"reply {reply.code}: {error}") from error


def value(reply: Command, make: Callable[[object], T]) -> T:
    """What `make` builds of the JSON object in a reply's body."""
    try:
        return make(bodies.loads_object(reply.body))
    except ValueError as error:
        raise RemoteProtocolError(f"reply {reply.code}: {error}") from error


def _name_of(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return "no remark"
