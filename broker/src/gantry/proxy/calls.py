"""A call as gRPC's server hands it over: its type, its deadline, and bytes that are no message.

`Context` is the same for all calls, because types of requests and answers do not matter to what is used of it here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from google.protobuf.message import DecodeError

if TYPE_CHECKING:
    import grpc
    from google.protobuf.message import Message

    Context = grpc.aio.ServicerContext[Message, Message]

Q = TypeVar("Q")
NOT_READABLE = "the bytes of the request are no message of the protocol"


def readable(read: Callable[[bytes], Q]) -> Callable[[bytes], Q | None]:
    """Return a deserializer that gives None for bytes it cannot read; gRPC's server would log a stack each time."""

    def found(data: bytes) -> Q | None:
        try:
            return read(data)
        except DecodeError:
            return None

    return found


def left_s(context: Context) -> float | None:
    """Return the time until the client's deadline in seconds; None when it set none."""
    return cast("float | None", context.time_remaining())
