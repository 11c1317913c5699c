"""Registrations of many topics, and requests that go over all topics: carried out in slices, so that the routes of
clients do not wait for them.

A broker with 10 000 topics sends 2 MB every 30 s, which take some 100 ms to read.  Meanwhile nothing else is taken from
its connection, so that its requests take effect in their order.  A connection that ends before the last slice registers
nobody.

Two are carried out at a time: what is read takes up to thirty times the bytes that came.  The others wait, host by
host; a host may let bytes wait while it has no more of them than are free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gantry.leaves.frames import Command
from gantry.nameserver.handlers import NameServerHandlers
from gantry.nameserver.sliced import SlicedWork
from gantry.transport.connection import Connection
from gantry.transport.fairness import FairTurns, SharedPlaces
from gantry.transport.tasks import watched
from gantry.wire.codes import ResponseCode
from gantry.wire.command import Request, encode_answer, reply

_READ_AT_ONCE = 2
_WAITING_BYTES_MAX = 256 << 20
_WHO = "a registration"


class LargeRegistrations:
    """The registrations under way.  `serve` takes requests that came behind one."""

    def __init__(self, handlers: NameServerHandlers, serve: Callable[[Connection, list[Request]], None]) -> None:
        self._handlers = handlers
        self._serve = serve
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = FairTurns(_READ_AT_ONCE)
        self._waiting = SharedPlaces(_WAITING_BYTES_MAX)

    def first_in(self, requests: Sequence[Request]) -> int:
        """Return the place of the first request of a batch that takes long; the batch's length when there is none."""
        for number, one in enumerate(requests):
            if isinstance(one, Command) and self._handlers.is_long(one):
                return number
        return len(requests)

    def take(self, connection: Connection, requests: list[Request]) -> None:
        """Carry out the first of these requests, and then the others; all of them behind those that were postponed."""
        if connection.has_postponed:
            connection.postpone(requests)
            return
        connection.pause_reading(_WHO)
        name = f"a registration of {connection.peer}"
        task = watched(self._carry_out(connection, requests), name, lambda error: _report(connection, error))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Leave out what is under way."""
        for task in self._tasks:
            task.cancel()

    async def _carry_out(self, connection: Connection, requests: list[Request]) -> None:
        command = requests[0]
        assert isinstance(command, Command)
        try:
            answer = await self._answer_in_turn(connection, command)
        except ValueError as error:
            answer = reply(command, ResponseCode.SYSTEM_ERROR, f"request {command.code}: {error}")
        finally:
            connection.resume_reading(_WHO)
        if connection.closed:
            return
        if not command.is_oneway:
            connection.write(encode_answer(command, answer))
        self._serve(connection, requests[1:])

    async def _answer_in_turn(self, connection: Connection, command: Command) -> Command:
        size = len(command.body)
        if not self._waiting.take(connection, size):
            remark = "[OVERLOAD] too many bytes of registrations wait to be read here; register again in a moment"
            return reply(command, ResponseCode.SYSTEM_BUSY, remark)
        try:
            async with self._turns.of(connection):
                return await self._answer(connection, command)
        finally:
            self._waiting.give_back(connection, size)

    async def _answer(self, connection: Connection, command: Command) -> Command:
        self._handlers.count(command.code)
        work = SlicedWork(self._handlers.in_slices(connection, command))
        for _ in work:
            await asyncio.sleep(0)
        return work.result


def _report(connection: Connection, error: BaseException | None) -> None:
    """End the connection of a registration that failed by an error of ours, as where a read hands requests over.

    Its broker would wait for the answers otherwise, to this request and to those behind it.
    """
    if error is not None:
        message = f"the registration of {connection.peer} failed"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
        connection.abort("its registration failed")
