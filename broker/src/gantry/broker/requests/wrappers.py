"""What is put around handlers of the table: few long answers at once, answers that wait for the disk, bad headers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gantry.leaves.frames import Command
from gantry.transport.fairness import FairTurns
from gantry.wire import headers
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

Answer = Command | None
Cold = Callable[["Connection", Command], Answer | Awaitable[Answer]]
"""A handler that is not for one of the hot kinds of requests."""

_NOT_DURABLE = "done, but {0} has not taken it yet, and a crash may undo it; look at its disk and link, and ask again"


def long(handler: Cold, turns: FairTurns) -> Cold:
    """Return a handler for long answers, of which only a few run at the same time to bound their use of the loop.

    Clients get their turns one after the other, however many answers one of them asks for.  For a client that does not
    read its replies no answer is made.
    """

    async def handle(connection: Connection, command: Command) -> Answer:
        async with turns.of(connection):
            if connection.closed:
                return None
            if not connection.is_writable:
                remark = "[OVERLOAD] answers of this connection wait to be read; read them and ask again"
                return reply(command, ResponseCode.SYSTEM_BUSY, remark)
            given = handler(connection, command)
            return given if given is None or isinstance(given, Command) else await given

    return handle


async def nothing_to_announce() -> None:
    """Do nothing: name servers do not know groups."""


def kept(
    handler: Cold,
    lacking: Callable[[], Awaitable[str]],
    announced: Callable[[], Awaitable[None]] = nothing_to_announce,
) -> Cold:
    """Return a handler that answers when the change is durable and, for a topic, when the name servers know it.

    lacking: waits until it is durable, and returns who lacks it after a while; empty: nobody.
    """

    async def handle(connection: Connection, command: Command) -> Answer:
        given = handler(connection, command)
        answer = given if given is None or isinstance(given, Command) else await given
        if answer is not None and not answer.code:
            who, _ = await asyncio.gather(lacking(), announced())
            if who:
                return reply(command, ResponseCode.SYSTEM_ERROR, _NOT_DURABLE.format(who))
        return answer

    return handle


def ill_formed(code: int) -> Cold:
    """Return the handler for hot requests with an invalid header; valid ones are a Send, Pull or End."""

    def handler(connection: Connection, command: Command) -> Answer:
        headers.parse(code, command.ext)  # names the field that is missing or ill-typed
        remark = f"the header of request {RequestCode(code).name} is not well-formed"
        return reply(command, ResponseCode.SYSTEM_ERROR, remark)

    return handler
