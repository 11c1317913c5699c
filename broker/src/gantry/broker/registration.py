"""Telling every name server that this broker is there, and which topics it has.

One registration (REGISTER_BROKER, 103) carries the whole topic table; it goes to all name servers at the same
time: at start, every 30 s, and at once when a topic was made, altered or deleted.  Changes that come while a
round is under way are carried by one more round after it.  A name server that does not answer costs nobody else
anything: it is asked again in the next round, and said once a minute in the log.

`caught_up` is for whoever must know that clients can find a topic now (the reply to an administrator who made one);
it waits for the rounds that were owed when it was called, and no longer than the time-out.

A registration always has two topics at least, because the system topics are in every table: a name server refuses a
first registration with exactly one (RocketMQ: RouteInfoManager.registerBroker takes it for an increment).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
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
        self._is_owed = asyncio.Event()
        self._asked = 0  # changes so far
        self._told = 0  # changes that a finished round has carried
        self._round_over = asyncio.Condition()

    def topic_changed(self, name: str) -> None:
        """A topic came, went or changed: tell the name servers now."""
        self._asked += 1
        self._is_owed.set()

    async def run(self) -> None:
        """Register at once and then on the period or on news, until cancelled."""
        while True:
            self._is_owed.clear()
            carried = self._asked
            await self.register_once()
            async with self._round_over:
                self._told = carried
                self._round_over.notify_all()
            try:
                # Not wait_for: it swallows a cancellation that comes together with the event (Python 3.11).
                async with asyncio.timeout(self._period_s):
                    await self._is_owed.wait()
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

    async def register_once(self) -> None:
        """One round: all name servers at the same time."""
        body = bodies.dumps({"filterServerList": [], "topicConfigSerializeWrapper": self._topics.to_body()})
        ext = self._ext() | {
            "haServerAddr": self._identity.ha_address,
            "compressed": "false",
            "bodyCrc32": str(hashes.crc31(body)),
        }
        await asyncio.gather(*[self._register(address, ext, body) for address in self.is_registered])

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

    def _ext(self) -> dict[str, str]:
        identity = self._identity
        return headers.to_ext(
            brokerName=identity.name,
            brokerAddr=identity.address,
            clusterName=identity.cluster,
            brokerId=identity.id,
        )
