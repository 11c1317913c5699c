"""Clients of a simulated broker: producers, transactional ones, and consumers, each on a host of its own.

They speak through the real `transport.client` and are otherwise as plain as can be, so that what the ledger knows is
what was said on the wire.  An attempt whose answer did not come is over: nobody sends the same body twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from gantry.errors import GantryError
from gantry.leaves import records
from gantry.leaves.frames import Command
from gantry.transport.client import RemotingClient
from gantry.transport.connection import Connection
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode
from simulation.ledger import Attempt, Found, Ledger, Place
from simulation.network import Network
from simulation.routes import Always, Route
from simulation.simloop import SimLoop
from simulation.world import World
from testkit.brokerplay import pull, send

_TIMEOUT_S = 3.0
_GROUP = "payers"
_COMMIT, _ROLLBACK = 8, 12


class Client:
    """A process that speaks to one broker: always the same one, or the one that its route leads to."""

    def __init__(self, world: World, network: Network, host: str, broker: str | Route) -> None:
        self.host = host
        self.loop = SimLoop(world, network, host)
        self.is_stopped = False
        self.asked = ""  # last
        self.beats_to: Sequence[str] = ()  # every broker of a group, as RocketMQ does; else the one that is asked
        self.chance = random.Random(world.chance.getrandbits(64))
        self._world = world
        self._route: Route = Always(broker) if isinstance(broker, str) else broker
        self._tasks: list[asyncio.Task[None]] = []
        self._remoting: RemotingClient | None = None

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin, in a turn of the own loop."""
        self.loop.call_soon(lambda: self._tasks.append(self.loop.begin(main())))

    async def ask(self, command: Command, timeout_s: float = _TIMEOUT_S) -> Command | None:
        """The answer, or None when none came."""
        if self._remoting is None:
            self._remoting = RemotingClient(self.on_requests, chance=self.chance, deaf_s=2.0)
        try:
            self.asked = await self._route.address(self._remoting)
            return await self._remoting.invoke(self.asked, command, timeout_s)
        except GantryError:
            self._route.missed()
            await asyncio.sleep(self.chance.uniform(0.02, 0.3))
            return None

    async def tell(self, address: str, command: Command) -> None:
        """Say this to one broker, whether it hears it or not."""
        if self._remoting is not None:
            with contextlib.suppress(GantryError):
                await self._remoting.invoke(address, command, 0.5)

    def on_requests(self, connection: Connection, commands: list[Command]) -> None:
        """What the broker asks."""


class Producer(Client):
    """Sends one message after the other; some of them delayed."""

    def __init__(
        self, world: World, network: Network, host: str, broker: str | Route, ledger: Ledger, places: list[Place]
    ) -> None:
        super().__init__(world, network, host, broker)
        self.pause_s = 0.1
        self.delayed = 0.1  # this share
        self.wall_ms: Callable[[], int] = lambda: 0  # of the broker's host
        self.sent = 0
        self.acked = 0
        self._ledger = ledger
        self._places = places

    async def main(self) -> None:
        """Until stopped."""
        while not self.is_stopped:
            await self.send_one()
            await asyncio.sleep(self.chance.expovariate(1 / self.pause_s))

    def attempt(self) -> Attempt:
        """A new message, in the ledger before it is sent."""
        topic, queue_id = self.chance.choice(self._places)
        self.sent += 1
        body = f"{self.host}-{self.sent}".encode() + b"." * self.chance.choice((0, 10, 300, 3000))
        made = Attempt(body, self.host, topic, queue_id, self._world.now)
        self._ledger.attempts[body] = made
        return made

    async def send_one(self) -> None:
        """One attempt, to its end."""
        made = self.attempt()
        pairs = {"UNIQ_KEY": made.body.decode()[:30]}
        if self.chance.random() < self.delayed:
            made.due_ms = self.wall_ms() + self.chance.choice((300, 1000, 4000))
            pairs["TIMER_DELIVER_MS"] = str(made.due_ms)
        answer = await self.ask(send(made.topic, made.body, made.queue_id, pairs, g=str(self.wall_ms())))
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            made.offset = int(answer.ext["queueOffset"])
            self.acknowledged(made)
        elif answer is not None:
            self._route.missed()

    def acknowledged(self, made: Attempt) -> None:
        """SEND_OK came."""
        made.acked_at, made.acked_by = self._world.now, self.asked
        self.acked += 1
        self._ledger.acknowledged(made)


class TransactionalProducer(Producer):
    """Sends halves, decides, ends some of them, and answers the broker's questions."""

    def __init__(
        self, world: World, network: Network, host: str, broker: str | Route, ledger: Ledger, places: list[Place]
    ) -> None:
        super().__init__(world, network, host, broker, ledger, places)
        self._decided: dict[str, bool] = {}  # by unique key

    async def main(self) -> None:
        """Until stopped; answers go on."""
        self._tasks.append(self.loop.begin(self._beat()))
        await super().main()

    async def send_one(self) -> None:
        """Half, decision, end: or no end, and the question has to come."""
        made = self.attempt()
        made.is_half = True
        key = made.body.decode()[:30]
        pairs = {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": _GROUP}
        half = send(made.topic, made.body, made.queue_id, pairs, a=_GROUP, f="4", g=str(self.wall_ms()))
        answer = await self.ask(half)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            if answer is not None:
                self._route.missed()
            return
        self.acknowledged(made)
        made.is_committed = self._decided[key] = self.chance.random() < 0.7
        if self.chance.random() < 0.6:
            offsets = {
                "tranStateTableOffset": answer.ext["queueOffset"],
                "commitLogOffset": str(int(answer.ext["msgId"][-16:], 16)),
            }
            await self.ask(self._end(key, offsets, "false"))

    def on_requests(self, connection: Connection, commands: list[Command]) -> None:
        """Check back: what was decided, mostly; of a half whose reply never came nothing is known."""
        for command in commands:
            key = command.ext.get("transactionId", "")
            if command.code == RequestCode.CHECK_TRANSACTION_STATE and key in self._decided:
                if self.chance.random() < 0.8:
                    connection.send_oneway(self._end(key, command.ext, "true"))

    def _end(self, key: str, offsets: dict[str, str], is_check: str) -> Command:
        fields = {name: offsets[name] for name in ("tranStateTableOffset", "commitLogOffset")}
        fields |= {"producerGroup": _GROUP, "transactionId": key, "msgId": key, "fromTransactionCheck": is_check}
        fields["commitOrRollback"] = str(_COMMIT if self._decided[key] else _ROLLBACK)
        return Command(RequestCode.END_TRANSACTION, ext=fields)

    async def _beat(self) -> None:
        beat = {"clientID": self.host, "producerDataSet": [{"groupName": _GROUP}], "consumerDataSet": []}
        while True:
            for address in self.beats_to:
                await self.tell(address, Command(RequestCode.HEART_BEAT, body=bodies.dumps(beat)))
            if not self.beats_to:
                await self.ask(Command(RequestCode.HEART_BEAT, body=bodies.dumps(beat)), 1.0)
            await asyncio.sleep(1.0)


class Consumer(Client):
    """Reads one queue from its beginning, waiting at its end; what it gets goes into the ledger."""

    def __init__(
        self, world: World, network: Network, host: str, broker: str | Route, ledger: Ledger, place: Place
    ) -> None:
        super().__init__(world, network, host, broker)
        self.next = 0
        self.group = ""  # its offsets are committed on the side of its pulls
        self._ledger = ledger
        self._place = place

    async def main(self) -> None:
        """Until stopped."""
        while not self.is_stopped:
            await self.read(2000)
            await asyncio.sleep(self.chance.uniform(0, 0.2))

    async def read(self, wait_ms: int) -> list[Found] | None:
        """One pull; None when there is nothing behind what was read."""
        topic, queue_id = self._place
        flags = {"sysFlag": "6" if wait_ms else "4", "suspendTimeoutMillis": str(wait_ms)}
        if self.group:
            flags |= {"sysFlag": "7" if wait_ms else "5", "consumerGroup": self.group, "commitOffset": str(self.next)}
        answer = await self.ask(pull(topic, self.next, queue_id, **flags), wait_ms / 1000 + _TIMEOUT_S)
        if answer is None:
            return []
        if answer.code == ResponseCode.SUCCESS:
            found = _found(answer.body)
            for one in found:
                self._ledger.saw(self._place, one)
            self.next = int(answer.ext["nextBeginOffset"])
            return found
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self._ledger.moved(self._place, self.next, int(answer.ext["nextBeginOffset"]))
            self.next = int(answer.ext["nextBeginOffset"])
        at_end = answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST)
        if answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY:  # a slave says so at its end, to send us to the master
            at_end = int(answer.ext["maxOffset"]) == self.next
            self._route.missed()
        return None if at_end else []


def _found(body: bytes) -> list[Found]:
    found: list[Found] = []
    at = 0
    while at < len(body):
        record = records.view(body, at, len(body))
        found.append(Found(bytes(record.body), record.queue_offset, record.store_ms))
        at += record.size
    return found
