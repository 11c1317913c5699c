"""Telling every name server that this broker is there, and which topics it has.

One registration (REGISTER_BROKER, 103) carries the whole topic table; it goes to all name servers at the same
time: at start, every 30 s, and at once when a topic was made, altered or deleted.  Changes that come while a
round is under way are carried by one more round after it.  A name server that does not answer, or whose connection is
lost, costs nobody else anything: it alone is asked again every second, and said once a minute in the log.  So one that
restarted, empty, knows this broker again before clients ask it for much; and in a group with failover it does not go on
sending them to an old master only because that one alone can still reach it.

In such a group a registration carries the epoch of the mastership that the broker leads or follows, as the state
version of its topic table: name servers, Apache's too, order masters by it.  A static broker's is 0.

`caught_up` is for anyone who must know that clients can find a topic now (the reply to an administrator who made one);
it waits for the rounds that were owed when it was called, and no longer than the time-out.

A registration always has two topics at least, because the system topics are in every table: a name server refuses a
first registration with exactly one (RocketMQ: RouteInfoManager.registerBroker takes it for an increment).
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


class Asking(Protocol):
    """What is used of `transport.client.RemotingClient`."""

    async def invoke(self, address: str, command: Command, timeout_s: float) -> Command:
        """Ask and await the answer."""
        ...


class TopicTable(Protocol):
    """What is used of `metadata.topics.Topics`."""

    def to_body(self) -> dict[str, object]:
        """The table as registrations carry it."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Who registers: the broker's names and the address that clients are told."""

    cluster: str
    name: str
    id: int
    address: str
    ha_address: str
    epoch: int = 0


class PermittedTopics:
    """The topic table as name servers are told it: no topic may do more than its broker.

    RocketMQ: brokerPermission is laid over every topic's own, which is how clients learn not to send here.
    """

    def __init__(self, topics: TopicTable, permission: int) -> None:
        self.permission = permission
        self._topics = topics

    def to_body(self) -> dict[str, object]:
        """The table, permissions taken away where the broker lacks them."""
        body = self._topics.to_body()
        if self.permission == PERM_READ_WRITE:
            return body
        table = body["topicConfigTable"]
        assert isinstance(table, dict)
        lacking = PERM_READ_WRITE & ~self.permission
        masked = {name: config | {"perm": config["perm"] & ~lacking} for name, config in table.items()}
        return body | {"topicConfigTable": masked}


class Registration:
    """Keeps the name servers informed; run() is a task of the broker."""

    def __init__(
        self,
        client: Asking,
        name_servers: tuple[str, ...],
        identity: Identity,
        topics: TopicTable,
        complaints: Complaints,
        period_s: float = 30.0,
        timeout_s: float = 3.0,
    ) -> None:
        self.is_registered = dict.fromkeys(name_servers, False)  # by name server, as of the last round
        self.master_ha = self.master_address = ""  # of our group, as name servers tell a slave
        self.complaints = complaints
        self._client = client
        self._identity = identity
        self._topics = topics
        self._period_s = period_s
        self._timeout_s = timeout_s
        self._woken = asyncio.Event()
        self._asked = 0  # changes so far
        self._told = 0  # changes that a finished round has carried
        self._round_over = asyncio.Condition()

    def topic_changed(self, name: str) -> None:
        """A topic came, went or changed: tell the name servers now."""
        self._asked += 1
        self._woken.set()

    def stand_as(self, broker_id: int, epoch: int) -> None:
        """From now on this broker has another id, in this epoch: tell the name servers now."""
        self._identity = replace(self._identity, id=broker_id, epoch=epoch)
        self.topic_changed("")

    def connection_lost(self, address: str) -> None:
        """The connection to a name server ended, and with it what it knew of this broker."""
        if self.is_registered.get(address):
            self.is_registered[address] = False
            self._woken.set()

    async def run(self) -> None:
        """Register at once and then on the period or on news, until cancelled."""
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
        """Until there is news, or a connection is lost."""
        self._woken.clear()
        try:
            # Not wait_for: it swallows a cancellation that comes together with the event (Python 3.11).
            async with asyncio.timeout(within_s):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def caught_up(self) -> None:
        """Return when all changes so far were told, or could not be within the time-out."""
        wanted = self._asked
        try:
            async with asyncio.timeout(self._timeout_s), self._round_over:
                await self._round_over.wait_for(lambda: self._told >= wanted)
        except TimeoutError:
            pass

    async def register_once(self, addresses: Sequence[str] = ()) -> None:
        """One round: all name servers, or some, at the same time."""
        body = bodies.dumps({"filterServerList": [], "topicConfigSerializeWrapper": self._table()})
        ext = self._ext() | {
            "haServerAddr": self._identity.ha_address,
            "compressed": "false",
            "bodyCrc32": str(hashes.crc31(body)),
        }
        asked = addresses or list(self.is_registered)
        await asyncio.gather(*[self._register(address, ext, body) for address in asked])

    async def unregister(self) -> None:
        """Say goodbye, so that clients look elsewhere at once; a silent name server learns it from the connection."""
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
            self.complaints.say(address, f"name server {address} was not told that this broker stops: {error}")
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
