"""A client's connections: to one of its name servers, and to the brokers it works with.

All name servers have the same data, so one is asked until it fails, then the next.  A route that one does not have is
asked of all of them, because a name server that has just started has no routes yet.

The first request on a new connection to a broker is a heartbeat: a broker has to know its clients before a pull or a
send, also after its restart.  Further heartbeats are sent every 30 s.  `on_return` is called when a broker is reachable
again after its connection was lost.

Requests of brokers are passed to `on_request`.  Unknown ones are answered as not supported, so that the tool that sent
them does not wait.

The session is the last part of a client to end (`lifecycle`).  Its `tasks` are those that belong to no single call:
heartbeats, requests for routes, tests of masters that do not answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from gantry.client.requests import questions
from gantry.client.requests.question import Question
from gantry.client.settings import nameserver_list
from gantry.errors import ClosedError, OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.leaves.frames import LANGUAGE_PYTHON, Command, encode
from gantry.transport.client import RemotingClient
from gantry.transport.connection import Connection
from gantry.transport.limits import ConnectionLimits
from gantry.transport.tasks import Tasks
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply
from gantry.wire.heartbeat import Heartbeat

T = TypeVar("T")
log = logging.getLogger(__name__)

HEARTBEAT_S = 30.0  # RocketMQ's heartbeatBrokerInterval; brokers forget a silent client after 120 s
NAMESERVER_TIMEOUT_S = 3.0
_HEARTBEAT_TIMEOUT_S = 3.0
_GOODBYE_S = 1.0


class Session:
    """Sends requests to name servers and brokers; start() once, close() at the end."""

    def __init__(
        self,
        nameserver: str | Sequence[str],
        heartbeat: Callable[[], Heartbeat] | None = None,
        on_request: Callable[[Connection, Command], bool] | None = None,
        on_return: Callable[[], None] | None = None,
        timeout_s: float | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self.nameservers = nameserver_list(nameserver)
        self.timeout_s = timeout_s  # of one request; None: each kind of request has its own
        self._heartbeat = heartbeat  # returns the heartbeat to send; None: none is sent
        self._on_request = on_request  # returns whether it handled the request
        self._on_return = on_return
        self._known: set[str] = set()  # addresses that we were connected to before
        self._refused_by: set[str] = set()  # those of them that refused the last heartbeat
        self._remoting = RemotingClient(self._serve, limits, on_connect=self._connected)
        self._preferred = 0  # index of the name server that answered last
        self.tasks = Tasks()

    def start(self) -> None:
        """Start the regular heartbeats; connections are made when they are needed."""
        if self._heartbeat is not None:
            self.tasks.own(asyncio.create_task(self._beat(), name="gantry-heartbeat"))

    async def close(self) -> None:
        """End the tasks, unregister at all connected brokers, and close the connections."""
        try:
            await self.tasks.close()
            if self._heartbeat is not None:
                goodbye = questions.unregister(self._heartbeat())
                asked = [self.ask(address, goodbye, _GOODBYE_S) for address in self.brokers()]
                await asyncio.gather(*asked, return_exceptions=True)
        finally:
            await self._remoting.close()

    async def ask(self, address: str, question: Question[T], timeout_s: float) -> T:
        """Send a request to a broker and return its answer; RefusedError, UnreachableError, OutcomeUnknownError or
        RemoteProtocolError.
        """
        return question.read(await self._remoting.invoke(address, question.command, timeout_s))

    async def tell(self, address: str, command: Command, timeout_s: float) -> None:
        """Send a one-way request; UnreachableError when the broker does not take it in time."""
        await self._remoting.send_oneway(address, command, timeout_s)

    def batching(self, address: str) -> Connection | None:
        """Return the connection to a broker that is known to be GantryMQ and takes output now; else None."""
        connection = self._remoting.ready(address)
        return connection if connection is not None and connection.is_gantry else None

    def unanswered(self, connection: Connection) -> None:
        """Note that a request that was sent by the connection itself was not answered in time."""
        self._remoting.unanswered(connection)

    @property
    def oneways_in_doubt(self) -> int:
        """The number of one-way requests on lost connections that the broker may not have read."""
        return self._remoting.oneways_in_doubt

    async def ask_nameserver(self, question: Question[T]) -> T:
        """Return the answer of the first name server that answers; UnreachableError when none does."""
        timeout_s = self.timeout_s or NAMESERVER_TIMEOUT_S
        failure: Exception | None = None
        count = len(self.nameservers)
        for step in range(count):
            index = (self._preferred + step) % count
            try:
                answer = await self.ask(self.nameservers[index], question, timeout_s)
            except ClosedError:
                raise
            except (UnreachableError, OutcomeUnknownError) as error:
                failure = error
                continue
            self._preferred = index
            return answer
        raise UnreachableError(f"no name server answers, tried {', '.join(self.nameservers)}: {failure}") from failure

    async def look_up(self, question: Question[T | None]) -> tuple[T | None, bool]:
        """Ask name servers until one has the data.

        Return the first answer that is not None, and True; or None, and whether every name server answered.
        UnreachableError
        when none answers. One that refuses, or whose answer cannot be read, counts as one that does not answer.
        """
        timeout_s = self.timeout_s or NAMESERVER_TIMEOUT_S
        failure: Exception | None = None
        count = len(self.nameservers)
        silent = 0
        first = self._preferred
        for step in range(count):
            index = (first + step) % count
            try:
                answer = await self.ask(self.nameservers[index], question, timeout_s)
            except ClosedError:
                raise
            except (UnreachableError, OutcomeUnknownError, RefusedError, RemoteProtocolError) as error:
                failure = error
                silent += 1
                continue
            if answer is not None:
                self._preferred = index
                return answer, True
        if silent < count:
            return None, not silent
        raise UnreachableError(f"no name server answers, tried {', '.join(self.nameservers)}: {failure}") from failure

    async def meet(self, address: str) -> None:
        """Connect to a broker, which also sends it the heartbeat; UnreachableError when it fails."""
        await self._remoting.connect(address, NAMESERVER_TIMEOUT_S)

    def brokers(self) -> list[str]:
        """Return the addresses of the connected brokers."""
        return [address for address in self._remoting.connections() if address not in self.nameservers]

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            for address, connection in self._remoting.connections().items():
                self._greet(address, connection)

    def _connected(self, address: str, connection: Connection) -> None:
        self._greet(address, connection)
        if address in self._known and self._on_return is not None and address not in self.nameservers:
            self._on_return()
        self._known.add(address)

    def _greet(self, address: str, connection: Connection) -> None:
        if self._heartbeat is None or address in self.nameservers:
            return
        question = questions.heartbeat(self._heartbeat())
        answer = connection.invoke(question.command, _HEARTBEAT_TIMEOUT_S)
        answer.add_done_callback(partial(self._greeted, address, connection, question))

    def _greeted(
        self, address: str, connection: Connection, question: Question[None], answer: asyncio.Future[Command]
    ) -> None:
        """Note what kind of broker answers.  Log a refused heartbeat once: such a broker gives this client no messages.

        Other failures need no action: another heartbeat follows, and requests on a dead connection fail.
        """
        if answer.cancelled() or answer.exception() is not None:
            return
        connection.is_gantry = answer.result().language == LANGUAGE_PYTHON
        try:
            question.read(answer.result())
        except RefusedError as error:
            if address not in self._refused_by:
                log.warning("%s: the heartbeat of this client is refused: %s", address, error)
            self._refused_by.add(address)
        else:
            self._refused_by.discard(address)

    def _serve(self, connection: Connection, commands: list[Command]) -> None:
        for command in commands:
            known = self._on_request is not None and self._on_request(connection, command)
            if not known and not command.is_oneway:
                remark = f"this client does not serve request {command.code}"
                connection.write(encode(reply(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)))

