"""Registers this broker and its topics at every name server.

One registration (REGISTER_BROKER, 103) carries the whole topic table.  It is sent to all name servers at the same time:
at start, every 30 s, and at once when a topic was created, changed or deleted.  Changes during a round are sent in one
more round after it.

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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gantry.broker.complaints import Complaints
from gantry.errors import GantryError, RefusedError
from gantry.leaves import hashes
from gantry.leaves.frames import Command
from gantry.model.topic import PERM_READ_WRITE
from gantry.wire import bodies, headers
from gantry.wire.codes import RequestCode
from gantry.wire.command import request

_GOODBYE_S = 1.0
_AGAIN_S = 1.0


class Invoker(Protocol):
    """The used part of `transport.client.RemotingClient`."""

    async def invoke(self, address: str, command: Command, timeout_s: float) -> Command:
        """Send a request and return its answer."""
        ...


class TopicTable(Protocol):
    """The used part of `metadata.topics.Topics`."""

    def to_body(self) -> dict[str, object]:
        """Return the table in the form of a registration."""
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
        self.permission = permission
        self._topics = topics

    def to_body(self) -> dict[str, object]:
        """Return the table without the permissions that the broker lacks."""
        body = self._topics.to_body()
        if self.permission == PERM_READ_WRITE:
            return body
        table = body["topicConfigTable"]
        assert isinstance(table, dict)
        lacking = PERM_READ_WRITE & ~self.permission
        masked = {name: config | {"perm": config["perm"] & ~lacking} for name, config in table.items()}
        return body | {"topicConfigTable": masked}


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
        self._asked = 0  # number of changes so far
        self._told = 0  # number of changes that a finished round has sent
        self._round_over = asyncio.Condition()

    def topic_changed(self, name: str) -> None:
        """Register now, because a topic was created, changed or deleted."""
        self._asked += 1
        self._woken.set()

    def stand_as(self, broker_id: int, epoch: int) -> None:
        """Register now with another broker id and epoch."""
        self._identity = replace(self._identity, id=broker_id, epoch=epoch)
        self.topic_changed("")

    def connection_lost(self, address: str) -> None:
        """Note that the connection to a name server ended, and with it the registration."""
        if self.is_registered.get(address):
            self.is_registered[address] = False
            self._woken.set()

    async def run(self) -> None:
        """Register at once, then every period and after every change, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            carried = self._asked
            due_s = loop.time() + self._period_s
            await self.register_once()
            async with self._round_over:
                self._told = carried
                self._round_over.notify_all()
            while self._asked == carried and (left_s := due_s - loop.time()) > 0:
                await self._sleep(min(left_s, _AGAIN_S) if self._missing() else left_s)
                if self._asked == carried and (missing := self._missing()):
                    await self.register_once(missing)

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
        body = bodies.dumps({"filterServerList": [], "topicConfigSerializeWrapper": self._table()})
        ext = self._ext() | {
            "haServerAddr": self._identity.ha_address,
            "compressed": "false",
            "bodyCrc32": str(hashes.crc31(body)),
        }
        asked = addresses or list(self.is_registered)
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
            if self._identity.id and answer.ext.get("masterAddr"):
                self.master_address = answer.ext["masterAddr"]
                self.master_ha = answer.ext.get("haServerAddr", "")

    async def _unregister(self, address: str) -> None:
        try:
            await self._client.invoke(address, request(RequestCode.UNREGISTER_BROKER, self._ext()), _GOODBYE_S)
        except GantryError as error:
            self.complaints.say(address, f"name server {address}: this broker could not be unregistered: {error}")
        self.is_registered[address] = False

    def _table(self) -> dict[str, object]:
        table = self._topics.to_body()
        if not self._identity.epoch:
            return table
        version = table["dataVersion"]
        assert isinstance(version, dict)
        return table | {"dataVersion": version | {"stateVersion": self._identity.epoch}}

    def _ext(self) -> dict[str, str]:
        identity = self._identity
        return headers.to_ext(
            brokerName=identity.name,
            brokerAddr=identity.address,
            clusterName=identity.cluster,
            brokerId=identity.id,
        )
