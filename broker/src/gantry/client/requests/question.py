"""A request together with the function that reads its answer, without any I/O.

Every exchange of the client is one `Question[T]`.  The asyncio session and the blocking one send its command, and pass
the reply to `read`.  So each request and the meaning of its answer are written once (`questions`, `admin_requests`).
`read` raises RefusedError for a refusal, RemoteProtocolError for an invalid reply.
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
REMARK_CHARACTERS_MAX = 500  # of a refusal's text; Java brokers send stack traces


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """The command to send, and the function that reads the reply."""

    command: Command
    read: Callable[[Command], T]


def require(reply: Command, *allowed: int) -> Command:
    """Return the reply when its code is SUCCESS or allowed; RefusedError otherwise."""
    if reply.code == ResponseCode.SUCCESS or reply.code in allowed:
        return reply
    raise RefusedError(reply.code, (reply.remark or _name_of(reply.code)).strip()[:REMARK_CHARACTERS_MAX])


def nothing(reply: Command) -> None:
    """Read a reply without a result; RefusedError unless it is SUCCESS."""
    require(reply)


def number(reply: Command, name: str) -> int:
    """Return an integer header field of a reply; RemoteProtocolError when it is missing or invalid."""
    try:
        return int(reply.ext[name])
    except KeyError:
        raise RemoteProtocolError(f"reply {reply.code} lacks {name}") from None
    except ValueError:
        raise RemoteProtocolError(
            f"reply {reply.code}: {name} is {reply.ext[name][:40]!r}, expected a number"
        ) from None


def document(reply: Command) -> dict[str, object]:
    """Return the JSON object in a reply's body; RemoteProtocolError when it is invalid."""
    try:
        return bodies.loads_object(reply.body)
    except ValueError as error:
        raise RemoteProtocolError(f"reply {reply.code}: {error}") from error


def value(reply: Command, make: Callable[[object], T]) -> T:
    """Return what `make` builds of the JSON object in a reply's body; RemoteProtocolError when it is invalid."""
    try:
        return make(bodies.loads_object(reply.body))
    except ValueError as error:
        raise RemoteProtocolError(f"reply {reply.code}: {error}") from error


def _name_of(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return "no remark"
