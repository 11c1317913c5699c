"""A name server and broker groups that do what a test says: real sockets, made-up answers.

    async with ScriptedCluster(groups=2) as cluster:
        cluster.answers["broker-a", 310] = refuse(2)
        ...
        assert cluster.asked("broker-b", 310)

Every topic has a route, those for redeliveries only with `has_retry_topics`.  Each name has one listener.  Routes,
the cluster, heartbeats and goodbyes are answered by themselves; any other request, and these too if the test says so,
is answered by what `answers` has for (name, code): a function from command to reply, where None means silence.
Everything that came is kept.  With `slaves`, each group has so many: `broker-a/1` is broker-a's first.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from gantry.leaves import frames, records
from gantry.leaves.frames import Command, encode
from gantry.model.names import is_retry_topic
from gantry.model.route import BrokerData, QueueData, TopicRoute
from gantry.transport.connection import Connection
from gantry.transport.server import RemotingServer
from gantry.wire.bodies import dumps
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import Request, reply
from testkit.requests import end_as_command

Answer = Callable[[Command], Command | None]
NAMESERVER = "nameserver"


def refuse(code: int, remark: str = "no") -> Answer:
    """Say no."""
    return lambda command: reply(command, code, remark)


def silence(_: Command) -> None:
    """Say nothing."""
    return


def stored(command: Command) -> Command:
    """What a broker says to a send."""
    count = 1
    if command.code == RequestCode.SEND_BATCH_MESSAGE:
        count = len(records.split_batch(command.body))
    ext = {"msgId": ",".join(["0A" * 16] * count), "queueId": command.ext["e"], "queueOffset": "7", "transactionId": ""}
    return reply(command, ext=ext)


def body(document: object) -> Answer:
    """Answer with a JSON body."""
    return lambda command: reply(command, body=dumps(document))


def offset(number: int) -> Answer:
    """Answer with an offset."""
    return lambda command: reply(command, ext={"offset": str(number)})


class ScriptedCluster:
    """Listeners for a name server and so many groups, each with `queues` queues of every topic."""

    def __init__(self, groups: int = 1, queues: int = 2, slaves: int = 0) -> None:
        self.names = [f"broker-{letter}" for letter in "abcdefgh"[:groups]]
        self.slaves = slaves
        self.gone: set[str] = set()  # listeners that the name server does not name any more
        self.leads: dict[str, str] = {}  # who is a group's master, where it is not the listener of its name
        self.answers: dict[tuple[str, int], Answer] = {}
        self.received: list[tuple[str, Command]] = []
        self.addresses: dict[str, str] = {}
        self.servers: dict[str, RemotingServer] = {}
        self.has_retry_topics = False
        self._queues = queues

    @property
    def nameserver(self) -> str:
        """Where clients begin."""
        return self.addresses[NAMESERVER]

    def asked(self, name: str, code: int) -> list[Command]:
        """The requests of one code that one listener got."""
        return [command for who, command in self.received if who == name and command.code == code]

    def connections(self, name: str) -> list[Connection]:
        """Who is connected."""
        return list(self.servers[name].connections)

    async def __aenter__(self) -> Self:
        """Listen."""
        slaves = [f"{name}/{number + 1}" for name in self.names for number in range(self.slaves)]
        for name in [NAMESERVER, *self.names, *slaves]:
            await self.listen(name)
        return self

    async def listen(self, name: str) -> None:
        """Listen for one name, on its old port if it had one."""
        port = int(self.addresses[name].rpartition(":")[2]) if name in self.addresses else 0
        server = RemotingServer(lambda connection, requests: self._serve(name, connection, requests))
        self.addresses[name] = f"127.0.0.1:{await server.start('127.0.0.1', port)}"
        self.servers[name] = server

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all listeners."""
        for server in self.servers.values():
            await server.close()

    def _serve(self, name: str, connection: Connection, requests: list[Request]) -> None:
        for request in requests:
            command = _as_command(request)
            self.received.append((name, command))
            answer = self.answers.get((name, command.code), self._usual)(command)
            if answer is not None and not command.is_oneway:
                connection.write(encode(answer))

    def _usual(self, command: Command) -> Command:
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            if is_retry_topic(command.ext["topic"]) and not self.has_retry_topics:
                return reply(command, ResponseCode.TOPIC_NOT_EXIST, "no")
            return reply(command, body=dumps(self._route().to_json()))
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            brokers = {one.broker_name: one.to_json() for one in self._route().brokers}
            return reply(command, body=dumps({"brokerAddrTable": brokers, "clusterAddrTable": {"C": self.names}}))
        if command.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            return stored(command)
        return reply(command)

    def _route(self) -> TopicRoute:
        queues = tuple(QueueData(name, self._queues, self._queues, 6) for name in self.names)
        return TopicRoute(queues, tuple(BrokerData("C", name, self._addresses_of(name)) for name in self.names))

    def _addresses_of(self, name: str) -> dict[int, str]:
        slaves = {number + 1: f"{name}/{number + 1}" for number in range(self.slaves)}
        listeners = {0: self.leads.get(name, name)} | slaves
        return {one: self.addresses[listener] for one, listener in listeners.items() if listener not in self.gone}


def _as_command(request: Request) -> Command:
    """Hot requests come decoded; tests want to see what was on the wire, in one form."""
    if isinstance(request, Command):
        return request
    if isinstance(request, frames.End):
        return end_as_command(request)
    command = Command(request.code, opaque=request.opaque, flag=request.rpc_flag)
    if isinstance(request, frames.Pull):
        command.ext = {
            "topic": request.topic,
            "queueId": str(request.queue_id),
            "queueOffset": str(request.queue_offset),
        }
        if request.sys_flag & 1:
            command.ext["commitOffset"] = str(request.commit_offset)
    else:
        command.ext = {"e": str(request.queue_id), "f": str(request.sys_flag), "i": request.properties.decode()}
        command.body = request.body
    return command
