"""Everything that lasts, on real processes whose wall clocks are set: a broker's, an HTTP server's, a client's.

All of it begins at once: a lease of a pop, one in order, one of an HTTP queue, a delay level, a delay, a queue lock,
and the immunity time of a half.  Then a clock is set, or the broker is killed and starts with another time.  The test
notes when it sees the end of each, by a clock that nobody sets.

A clock that is set forwards by 24 years ends two things, as documented: the life of messages of HTTP queues, which goes
by the clock of the server that sent them, and, over a start, the 72 hours after which an open half is given up.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gantry.client.admin import Admin
from gantry.client.producer import Message, Producer
from gantry.client.simpleconsumer import SimpleConsumer, StartFrom
from gantry.client.transaction import Outcome, StoredMessage, TransactionProducer
from gantry.errors import GantryError
from gantry.model.subscription import GroupConfig
from gantry.wire.codes import RequestCode
from scenarios.test_http_topics import server
from testkit.mnscalls import MnsCaller
from testkit.patience import HANG_S
from testkit.ports import VIP, free_port
from testkit.process import GantryProcess
from testkit.rawclient import RawClient
from testkit.simclock import HOUR_MS, SECOND_MS, YEARS_MS
from testkit.turning import until
from testkit.wrongclock import WrongClock

LASTS_S = 4.0
LEVEL, LEVEL_S = 2, 5.0
_LOOK_S = 0.1
_SKEWS_MS = (
    -HOUR_MS,
    HOUR_MS,
    *(pytest.param(skew_ms, marks=pytest.mark.slow) for skew_ms in (-YEARS_MS, -SECOND_MS, SECOND_MS, YEARS_MS)),
)
skews = pytest.mark.parametrize("skew_ms", _SKEWS_MS)

_CONFIG = {
    "clients.queue_lock_s": f"{LASTS_S}",
    "transactions.immunity_s": f"{LASTS_S}",
    "transactions.check_interval_s": "0.2",
    "store.flush": "SYNC_FLUSH",
    "registration.period_s": "1",
}


class World:
    """A broker and an HTTP server in processes of their own, each with its clock, and a clock for the clients here."""

    def __init__(self, folder: Path) -> None:
        self.broker_clock, self.server_clock, self.client_clock = (
            WrongClock(folder / f"clock-{name}") for name in ("broker", "server", "client")
        )
        ports = {"network.port": free_port(VIP), "standalone.nameserver_port": free_port()}
        self._config = _CONFIG | {name: str(port) for name, port in ports.items()}
        self._folder = folder / "store"
        self.process = self._started()
        self.nameserver = "{}:{}".format(*self.process.addresses["nameserver"])
        environment = self.server_clock.environment
        self.server = server(folder / "server", self.process.addresses["nameserver"], environment=environment)

    def _started(self) -> GantryProcess:
        return GantryProcess(self._folder, self._config, self.broker_clock.environment)

    def start_again(self, ahead_ms: int) -> None:
        """Kill the broker, set its clock, and start it."""
        self.process.__exit__(None, None, None)
        self.broker_clock.set_ahead(ahead_ms)
        self.process = self._started()

    def close(self) -> None:
        """Kill both."""
        for process in (self.process, self.server):
            process.__exit__(None, None, None)


class Lasting:
    """What lasts, by name: when it began at the latest, how long it has to last, and when its end was seen."""

    def __init__(self) -> None:
        self.begun_s: dict[str, float] = {}
        self.lasts_s: dict[str, float] = {}
        self.ended_s: dict[str, float] = {}

    @contextmanager
    def beginning(self, name: str, lasts_s: float = LASTS_S) -> Iterator[None]:
        """Note that something begins in this block, at the earliest when that is entered."""
        self.begun_s[name], self.lasts_s[name] = time.monotonic(), lasts_s
        yield

    def end(self, name: str) -> None:
        """Note that it has ended."""
        self.ended_s.setdefault(name, time.monotonic())

    def early(self) -> dict[str, float]:
        """Return what ended too early, with the seconds that it lasted."""
        lasted = {name: self.ended_s[name] - begun_s for name, begun_s in self.begun_s.items()}
        return {name: round(one, 2) for name, one in lasted.items() if one < self.lasts_s[name]}


class Play:
    """Begins everything that lasts, and looks for its end."""

    def __init__(self, world: World, without: Collection[str] = ()) -> None:
        self.world = world
        self.without = without
        self.lasting = Lasting()
        self._half_id = ""
        self._looking: list[asyncio.Task[None]] = []
        self._about = {"nameserver": world.nameserver, "clock": world.client_clock}

    async def run(self, set_clock: Callable[[], object]) -> Lasting:
        """Begin, set a clock, and wait until everything has ended."""
        async with Admin(nameserver=self.world.nameserver) as admin:
            for topic in ("Leased", "Ordered", "Later", "Locked", "Halves"):
                await admin.create_topic(topic, queues=1)
            await admin.create_group("leasing")
            await admin.create_group(GroupConfig("ordering", consume_orderly=True))
        async with (
            self._consumer("leasing", "Leased") as leasing,
            self._consumer("ordering", "Ordered") as ordering,
            self._consumer("reading", "Later") as reading,
            Producer("sending", **self._about) as producer,  # type: ignore[arg-type]
            TransactionProducer("halves", self._check, **self._about) as halves,  # type: ignore[arg-type]
        ):
            await self._begin(producer, halves, leasing, ordering)
            with MnsCaller(self.world.server.addresses["queues"]) as mns:
                await self._begin_visibility(mns)
                await self._begin_lock()
                set_clock()
                self._looking = [
                    asyncio.create_task(self._look(one))
                    for one in (
                        lambda: self._receive("lease", leasing),
                        lambda: self._receive("batch", ordering),
                        lambda: self._read(reading),
                        lambda: self._receive_http(mns),
                        self._lock,
                    )
                ]
                try:
                    await until(lambda: self.lasting.ended_s.keys() == self.lasting.begun_s.keys())
                except TimeoutError:
                    missing = self.lasting.begun_s.keys() - self.lasting.ended_s.keys()
                    raise AssertionError(f"has not ended after {HANG_S:g} s: {missing}") from None
                finally:
                    for task in self._looking:
                        task.cancel()
                    await asyncio.wait(self._looking)
        return self.lasting

    def _consumer(self, group: str, topic: str) -> SimpleConsumer:
        return SimpleConsumer(group, subscription={topic: "*"}, start_from=StartFrom.FIRST, **self._about)  # type: ignore[arg-type]

    async def _begin(
        self, producer: Producer, halves: TransactionProducer, leasing: SimpleConsumer, ordering: SimpleConsumer
    ) -> None:
        for name, topic, consumer in (("lease", "Leased", leasing), ("batch", "Ordered", ordering)):
            await producer.send(Message(topic, name.encode()))
            with self.lasting.beginning(name):
                assert await consumer.receive(1, LASTS_S), name
        with self.lasting.beginning("level", LEVEL_S):
            await producer.send(Message("Later", b"level", delay_level=LEVEL))
        with self.lasting.beginning("delay"):
            await producer.send(Message("Later", b"delay", delay_s=LASTS_S))
        if "half" in self.without:
            return
        with self.lasting.beginning("half"):
            async with halves.transaction(Message("Halves", b"half")) as transaction:
                self._half_id = transaction.message_id
                transaction.leave()

    async def _check(self, half: StoredMessage) -> Outcome:
        assert half.message_id == self._half_id
        self.lasting.end("half")
        return Outcome.COMMIT

    async def _begin_visibility(self, mns: MnsCaller) -> None:
        if "visibility" in self.without:
            return
        assert mns.put("visible", VisibilityTimeout=int(LASTS_S)).status == 201
        assert mns.send("visible", "x").status == 201
        with self.lasting.beginning("visibility"):
            assert mns.receive("visible", wait_s=10).text("MessageBody") == "x"

    async def _begin_lock(self) -> None:
        with self.lasting.beginning("lock"):
            assert self._locked("owner")
        is_refused = not self._locked("other")
        assert is_refused or time.monotonic() - self.lasting.begun_s["lock"] >= LASTS_S

    def _locked(self, client_id: str) -> bool:
        queue = {"topic": "Locked", "brokerName": "broker-a", "queueId": 0}
        asked = {"consumerGroup": "locking", "clientId": client_id, "mqSet": [queue]}
        client = RawClient(self.world.process.broker)
        try:
            answer = client.call(RequestCode.LOCK_BATCH_MQ, {}, json.dumps(asked).encode())
        finally:
            client.close()
        return bool(json.loads(answer.body)["lockOKMQSet"])

    async def _look(self, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await look()
            except (GantryError, ConnectionError):
                pass  # the broker is starting
            await asyncio.sleep(_LOOK_S)

    async def _receive(self, name: str, consumer: SimpleConsumer) -> None:
        if await consumer.receive(1, wait_s=0):
            self.lasting.end(name)

    async def _read(self, consumer: SimpleConsumer) -> None:
        for message in await consumer.receive(wait_s=0):
            self.lasting.end(message.body.decode())

    async def _receive_http(self, mns: MnsCaller) -> None:
        if "visibility" not in self.without and mns.receive("visible").status == 200:
            self.lasting.end("visibility")

    async def _lock(self) -> None:
        if self._locked("other"):
            self.lasting.end("lock")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    yield found
    found.close()


def _over(skew_ms: int, *names: str) -> Collection[str]:
    """Return what of these is over when a clock is set forwards by so much."""
    return names if skew_ms == YEARS_MS else ()


@skews
async def test_everything_lasts_as_long_when_the_broker_s_clock_is_set(world: World, skew_ms: int) -> None:
    lasting = await Play(world, _over(skew_ms, "visibility")).run(lambda: world.broker_clock.set_ahead(skew_ms))
    assert lasting.early() == {}


@skews
async def test_everything_ends_after_a_start_with_another_time_and_nothing_early_set_back(
    world: World, skew_ms: int
) -> None:
    """A start does not know that the clock was set forwards; locks last by the start's own time."""
    lasting = await Play(world, _over(skew_ms, "visibility", "half")).run(lambda: world.start_again(skew_ms))
    assert lasting.early().keys() <= (set() if skew_ms < 0 else lasting.begun_s.keys() - {"lock"})


@skews
async def test_everything_lasts_as_long_whatever_the_clients_clocks_are(world: World, skew_ms: int) -> None:
    world.client_clock.set_ahead(skew_ms)
    world.server_clock.set_ahead(-skew_ms)
    play = Play(world, _over(skew_ms, "visibility"))
    lasting = await play.run(lambda: world.server_clock.set_ahead(2 * skew_ms))
    assert lasting.early() == {}
