"""The operator's part for topics and consumer groups on real brokers of this process; the API server is a dictionary.

play(tmp_path, story, groups=2) gives `story` a Play: objects are declared on `server`, passes are `once(key)`, and what
the brokers then have is asked by `topic`, `group` and `offsets`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from gantry.broker.broker import Broker
from gantry.client.brokeradmin import BrokerAdmin
from gantry.client.consumer import Consumer, ConsumerSettings
from gantry.client.producer import Producer
from gantry.client.requests.question import Question
from gantry.errors import UnreachableError
from gantry.model.message import Message
from gantry.model.route import MessageQueue
from gantry.model.subscription import GroupConfig
from gantry.model.topic import TopicConfig
from gantry_operator.api.brokercluster import Key
from gantry_operator.api.declared import Declared, Kind
from gantry_operator.declared.asking import Asking
from gantry_operator.declared.claims import Claims
from gantry_operator.declared.declarations import Declarations
from gantry_operator.declared.groups import Groups
from gantry_operator.declared.territory import Territories
from gantry_operator.declared.topics import Topics
from gantry_operator.declared.waking import Waking
from testkit.clusterplay import Cluster, running_cluster
from testkit.kube.declared import CLUSTER, NAMESPACE, DiedError, Document, Life, Server, kind_of
from testkit.patience import HANG_S
from testkit.simclock import SimClock
from testkit.turning import until

T = TypeVar("T")
_PASSES = 3  # a finalizer comes or goes in one of its own


class Loopback(BrokerAdmin):
    """Asks brokers of this process under the names that they have in a cluster."""

    def __init__(self, nameserver: str, broker_of: Callable[[str], Broker | None], life: Life) -> None:
        super().__init__(HANG_S, HANG_S)
        self._nameserver = nameserver
        self._broker_of = broker_of
        self._life = life

    async def _ask(self, address: str, question: Question[T]) -> T:
        host = address.partition(".")[0]
        if host.startswith(f"{CLUSTER}-ns-"):
            return await super()._ask(self._nameserver, question)
        broker = self._broker_of(host)
        if broker is None or broker.addresses is None:
            raise UnreachableError(f"{host} is down")
        answer = await super()._ask(f"127.0.0.1:{broker.addresses.port}", question)
        self._life.did()
        return answer


class Play:
    """An operator's part, its API server and brokers, which `broker_of` knows by the names of their Services."""

    cluster: Cluster  # where brokers are those of a `running_cluster`

    def __init__(self, nameserver: str, broker_of: Callable[[str], Broker | None], groups: int) -> None:
        self.nameserver, self.server, self.clock = nameserver, Server(), SimClock()
        self.server.add_cluster(groups)
        self.brokers = Loopback(nameserver, broker_of, self.server.life)
        self.start()

    def start(self) -> None:
        """An operator that has just started."""
        territories, claims = Territories(self.server, self.clock), Claims(self.server, self.clock)
        self.waking = Waking(territories, claims, lambda key, after_s: None)
        self._heard: dict[str, Document] = {}
        asking = Asking(self.clock)
        things = {
            Kind.TOPIC: Topics(self.brokers, asking, self.clock),
            Kind.CONSUMER_GROUP: Groups(self.server, self.brokers, asking, self.clock),
        }
        self._declarations = Declarations(self.server, things, territories, claims, self.clock)

    async def once(self, key: Declared) -> float | None:
        """A pass that has heard everything."""
        self._hear()
        self.waking.decided(Key(NAMESPACE, CLUSTER))
        return await self._declarations.once(key)

    async def die(self, key: Declared, after: int) -> bool:
        """An operator works on an object until it dies behind so many things that it did; False: it lives on.

        The next one takes over a minute later.
        """
        self.start()
        self.server.life.left = after
        try:
            for _ in range(_PASSES):
                await self.once(key)
        except DiedError:
            return True
        finally:
            self.server.life.left = -1
            self.start()
            self.clock.advance(60_000)
        return False

    def _hear(self) -> None:
        here = {path: each for path, each in self.server.documents.items() if kind_of(path) is not None}
        for path, document in [*here.items(), *self._heard.items()]:
            kind = kind_of(path)
            assert kind is not None
            self.waking.heard(kind, document, path not in here)
        self._heard = here

    async def topic(self, name: str, group: int = 0) -> TopicConfig | None:
        """How a broker has it."""
        return await self.brokers.topic(self.member(group), name)

    async def group(self, name: str, group: int = 0) -> GroupConfig | None:
        """How a broker treats it."""
        return await self.brokers.group(self.member(group), name)

    async def change(self, config: TopicConfig) -> None:
        """Somebody changes a topic by hand."""
        await self.brokers.put_topic(self.member(0), config, {})

    async def offsets(self, group: str) -> dict[int, int]:
        """By queue."""
        lags = await self.brokers.lag(self.member(0), f"{CLUSTER}-b0", group=group, topic="tea")
        return {each.queue.queue_id: each.committed for each in lags}

    def tea(self, **spec: object) -> Declared:
        """A BrokerTopic."""
        return self.server.declare(Kind.TOPIC, "tea", **spec)

    def shop(self, **spec: object) -> Declared:
        """A ConsumerGroup."""
        return self.server.declare(Kind.CONSUMER_GROUP, "shop", **spec)

    async def produce(self, *queues: int) -> None:
        """A message to each of these queues."""
        async with Producer("p", nameserver=self.nameserver) as producer:
            for queue in queues:
                place = MessageQueue("tea", f"{CLUSTER}-b0", queue)
                await producer.send(Message("tea", b"x"), queue=place, timeout_s=HANG_S)

    @asynccontextmanager
    async def consuming(self, count: int) -> AsyncIterator[Consumer]:
        """A member that has consumed so many."""
        seen: list[object] = []

        async def taken(message: object) -> None:
            seen.append(message)

        async with Consumer(
            "shop", nameserver=self.nameserver, subscription={"tea": "*"}, listener=taken,
            settings=ConsumerSettings(),
        ) as consumer:  # fmt: skip
            await until(lambda: len(seen) >= count)
            yield consumer

    def member(self, group: int) -> str:
        """Its master's address, as the operator has it."""
        return f"{CLUSTER}-b{group}-0.{NAMESPACE}.svc:10911"


@asynccontextmanager
async def playing(tmp_path: Path, groups: int = 1) -> AsyncIterator[Play]:
    """Start the brokers orders-b0, ... and one operator."""
    async with running_cluster(tmp_path, groups=0) as cluster:
        for number in range(groups):
            await cluster.start(f"{CLUSTER}-b{number}")

        def broker_of(host: str) -> Broker | None:
            return cluster.brokers.get(host.rpartition("-")[0])

        one = Play(cluster.nameserver, broker_of, groups)
        one.cluster = cluster
        try:
            yield one
        finally:
            await one.brokers.close()
