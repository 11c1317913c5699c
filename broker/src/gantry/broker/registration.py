"""Registers this broker and its topics at every name server.

A whole registration (REGISTER_BROKER, 103) carries the topic table, encoded in slices.  It is sent to all name servers
at the same time: at start, every 30 s, and at once when a topic was deleted or the broker stands as another one.

A topic that was created or changed is registered by itself (REGISTER_TOPIC_IN_NAMESRV, 217), so it costs the same
however many there are.  A name server that does not know this request (RocketMQ's before 5.0) gets a whole registration
instead.  Only a master does so: a name server takes no topics from a slave.  RocketMQ: enableSingleTopicRegister.  Its
other way, a REGISTER_BROKER with the changed topics only, is a whole one for a name server that deletes what a
registration lacks.

Changes during a round are sent in one more round after it.

A name server that does not answer, or whose connection is lost, does not delay the others.  It alone is tried again
every second, and logged once a minute.  So a name server that restarted knows this broker soon, and in a group with
failover it does not route clients to a former master for long.

In such a group a registration carries the epoch that the broker leads or follows, as the state version of its topic
table: name servers, Apache's too, order masters by it.  It is 0 for a static broker.

`caught_up` is for requests whose reply means that clients can find a topic now.  It waits for the rounds that were due
when it was called, and no longer than the time-out.

A registration always has at least two topics, because every table has the system topics.  A name server refuses a first
registration with exactly one (RocketMQ: RouteInfoManager.registerBroker treats it as incremental).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gantry.broker.complaints import Complaints
from gantry.errors import GantryError, OutcomeUnknownError, RefusedError
from gantry.leaves import hashes
from gantry.leaves.frames import Command
from gantry.metadata import longanswers
from gantry.model.route import QueueData
from gantry.model.topic import PERM_READ_WRITE, TopicConfig
from gantry.wire import bodies, headers
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import request

_GOODBYE_S = 1.0
_AGAIN_S = 1.0
_TOPICS_AT_ONCE = 64
_SINGLE_TOPICS_VERSION = 413  # V5_0_0: RocketMQ's name server before it does not answer 217


class Invoker(Protocol):
    """The used part of `transport.client.RemotingClient`."""

    async def invoke(self, address: str, command: Command, timeout_s: float) -> Command:
        """Send a request and return its answer."""
        ...


class TopicTable(Protocol):
    """The used part of `metadata.topics.Topics`."""

    def head(self) -> dict[str, object]:
        """Return the table in the form of a registration, without the topics."""
        ...

    def all(self) -> Iterable[TopicConfig]:
        """Return all topics as they are now."""
        ...

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic; None when it does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Who registers: the broker's names, id, epoch, and the addresses for clients and slaves."""

    cluster: str
    name: str
    id: int
    address: str
    ha_address: str
    epoch: int = 0


class PermittedTopics:
    """The topic table for registrations, with each topic's permission limited to the broker's.

    RocketMQ: brokerPermission limits every topic's own permission, so that clients do not send to this broker.
    """

    def __init__(self, topics: TopicTable, permission: int) -> None:
        self._permission = permission
        self._changes = 0  # of the permission
        self._topics = topics

    @property
    def permission(self) -> int:
        """The broker's permission."""
        return self._permission

    @permission.setter
    def permission(self, permission: int) -> None:
        self._permission = permission
        self._changes += 1

    def head(self) -> dict[str, object]:
        """Return the table in the form of a registration, without the topics.

        Its version counts changes of the permission too: a name server takes no topics with a version that it has.
        """
        head = self._topics.head()
        version = head["dataVersion"]
        assert isinstance(version, dict)
        return head | {"dataVersion": version | {"counter": version["counter"] + self._changes}}

    def all(self) -> Iterator[TopicConfig]:
        """Yield all topics as they are now, without the permissions that the broker lacks."""
        return map(self._permitted, list(self._topics.all()))

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic without the permissions that the broker lacks; None when it does not exist."""
        topic = self._topics.get(name)
        return None if topic is None else self._permitted(topic)

    def _permitted(self, topic: TopicConfig) -> TopicConfig:
        lacking = PERM_READ_WRITE & ~self.permission
        return replace(topic, perm=topic.perm & ~lacking) if topic.perm & lacking else topic


class RegistrationTask:
    """Keeps the name servers informed; run() is a task of the broker."""

    def __init__(
        self,
        client: Invoker,
        name_servers: tuple[str, ...],
        identity: BrokerIdentity,
        topics: TopicTable,
        complaints: Complaints,
        period_s: float = 30.0,
        timeout_s: float = 3.0,
    ) -> None:
        self.is_registered = dict.fromkeys(name_servers, False)  # by name server, after the last round
        self.master_ha = self.master_address = ""  # of the group's master, from the answer to a slave
        self.complaints = complaints
        self._client = client
        self._identity = identity
        self._topics = topics
        self._period_s = period_s
        self._timeout_s = timeout_s
        self._woken = asyncio.Event()
        self._changed: dict[str, None] = {}  # topics to be registered by themselves
        self._wholes = 0  # how often the whole table was asked for
        self._takes_whole_only: set[str] = set()  # name servers that do not know single topics
        self._asked = 0  # number of changes so far
        self._told = 0  # number of changes that a finished round has sent
        self._round_over = asyncio.Condition()

    def topic_changed(self, name: str) -> None:
        """Register a topic now that was created or changed, or the whole table for one that was deleted."""
        if self._topics.get(name) is None:
            self.changed()
            return
        self._changed[name] = None
        self._asked += 1
        self._woken.set()

    def changed(self) -> None:
        """Register the whole table now."""
        self._wholes += 1
        self._asked += 1
        self._woken.set()

    def stand_as(self, broker_id: int, epoch: int) -> None:
        """Register now with another broker id and epoch."""
        self._identity = replace(self._identity, id=broker_id, epoch=epoch)
        self.changed()

    def connection_lost(self, address: str) -> None:
        """Note that the connection to a name server ended, and with it the registration."""
        self._takes_whole_only.discard(address)
        if self.is_registered.get(address):
            self.is_registered[address] = False
            self._woken.set()

    async def run(self) -> None:
        """Register at once, then every period and after every change, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            carried, wholes = self._asked, self._wholes
            self._changed.clear()
            due_s = loop.time() + self._period_s
            await self.register_once()
            await self._note_told(carried)
            again_s = loop.time() + _AGAIN_S
            while self._wholes == wholes and (left_s := due_s - loop.time()) > 0:
                tried = self._missing()
                if not self._changed:
                    await self._sleep(min(left_s, _AGAIN_S) if tried else left_s)
                if self._wholes != wholes:
                    break
                await self._register_changed()
                missing = self._missing()
                if missing and (missing != tried or loop.time() >= again_s):
                    await self.register_once(missing)
                    again_s = loop.time() + _AGAIN_S

    async def _note_told(self, carried: int) -> None:
        async with self._round_over:
            self._told = carried
            self._round_over.notify_all()

    async def _register_changed(self) -> None:
        """Register the changed topics one by one at those who know this broker."""
        if not self._changed:
            return
        carried, names = self._asked, list(self._changed)
        self._changed.clear()
        known = [] if self._identity.id else [address for address, done in self.is_registered.items() if done]
        for at in range(0, len(names), _TOPICS_AT_ONCE):
            some = [topic for name in names[at : at + _TOPICS_AT_ONCE] if (topic := self._topics.get(name)) is not None]
            # One that failed, or was lost, gets a whole registration next: it may be another name server by now.
            able = [one for one in known if self.is_registered[one] and one not in self._takes_whole_only]
            await asyncio.gather(*[self._register_topic(address, topic) for address in able for topic in some])
        unable = [address for address in known if address in self._takes_whole_only]
        if unable:
            await self.register_once(unable)
        await self._note_told(carried)

    def _missing(self) -> list[str]:
        return [address for address, done in self.is_registered.items() if not done]

    async def _sleep(self, within_s: float) -> None:
        """Wait for a change, a lost connection or the end of the time."""
        self._woken.clear()
        try:
            # Not wait_for: it swallows a cancellation that comes together with the event (Python 3.11).
            async with asyncio.timeout(within_s):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def caught_up(self) -> None:
        """Return when all changes so far were sent, or the time-out has passed."""
        wanted = self._asked
        try:
            async with asyncio.timeout(self._timeout_s), self._round_over:
                await self._round_over.wait_for(lambda: self._told >= wanted)
        except TimeoutError:
            pass

    async def register_once(self, addresses: Sequence[str] = ()) -> None:
        """Register once at all name servers, or at some, at the same time."""
        asked = addresses or list(self.is_registered)
        identity = self._ext() | {"haServerAddr": self._identity.ha_address, "compressed": "false"}
        try:
            body = await self._body()
        except RefusedError as error:
            for address in asked:
                self.is_registered[address] = False
                self.complaints.say(address, f"this broker cannot register at {address}: {error}")
            return
        ext = identity | {"bodyCrc32": str(hashes.crc31(body))}
        await asyncio.gather(*[self._register(address, ext, body) for address in asked])

    async def unregister(self) -> None:
        """Unregister at the name servers, so that clients go elsewhere at once."""
        await asyncio.gather(*[self._unregister(address) for address, done in self.is_registered.items() if done])

    async def _register(self, address: str, ext: dict[str, str], body: bytes) -> None:
        try:
            answer = await self._client.invoke(
                address, request(RequestCode.REGISTER_BROKER, ext, body), self._timeout_s
            )
            if answer.code:
                raise RefusedError(answer.code, answer.remark or "no remark")
        except GantryError as error:
            self.is_registered[address] = False
            self.complaints.say(address, f"name server {address} did not take the registration: {error}")
        else:
            self.is_registered[address] = True
            if answer.version < _SINGLE_TOPICS_VERSION:
                self._takes_whole_only.add(address)
            if self._identity.id and answer.ext.get("masterAddr"):
                self.master_address = answer.ext["masterAddr"]
                self.master_ha = answer.ext.get("haServerAddr", "")

    async def _register_topic(self, address: str, topic: TopicConfig) -> None:
        if self._identity.id:
            return  # it became a slave during the round, and Apache's name server takes single topics from anybody
        queues = QueueData(self._identity.name, topic.read_queues, topic.write_queues, topic.perm, topic.sys_flag)
        # RocketMQ's header has the topic only.  Ours compares the address with the group's master.
        ext = headers.to_ext(topic=topic.name, brokerAddr=self._identity.address)
        body = bodies.dumps({"brokerDatas": [], "queueDatas": [queues.to_json()]})
        try:
            answer = await self._client.invoke(
                address, request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, ext, body), self._timeout_s
            )
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self._takes_whole_only.add(address)
            elif answer.code:
                raise RefusedError(answer.code, answer.remark or "no remark")
        except GantryError as error:
            if isinstance(error, OutcomeUnknownError):
                self._takes_whole_only.add(address)
            self.is_registered[address] = False
            self.complaints.say(address, f"name server {address} did not take a topic: {error}")

    async def _unregister(self, address: str) -> None:
        try:
            await self._client.invoke(address, request(RequestCode.UNREGISTER_BROKER, self._ext()), _GOODBYE_S)
        except GantryError as error:
            self.complaints.say(address, f"name server {address}: this broker could not be unregistered: {error}")
        self.is_registered[address] = False

    async def _body(self) -> bytes:
        """Return the table in the form of a registration; RefusedError when no frame holds it."""
        head = self._topics.head()
        if self._identity.epoch:
            version = head["dataVersion"]
            assert isinstance(version, dict)
            head |= {"dataVersion": version | {"stateVersion": self._identity.epoch}}
        # A topic that changes meanwhile is in it in either state, with the older version: it is registered after this.
        every = ((topic.name, topic.to_json()) for topic in self._topics.all())
        table = await longanswers.table(head, "topicConfigTable", every, "have fewer topics")
        return b'{"filterServerList":[],"topicConfigSerializeWrapper":' + table + b"}"

    def _ext(self) -> dict[str, str]:
        identity = self._identity
        return headers.to_ext(
            brokerName=identity.name,
            brokerAddr=identity.address,
            clusterName=identity.cluster,
            brokerId=identity.id,
        )
