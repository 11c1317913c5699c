"""What a broker says of itself to name servers: its names, and its topic table as the body of a whole registration."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from gantry.broker.permitted_topics import TopicTable
from gantry.leaves import hashes
from gantry.leaves.frames import Command
from gantry.metadata import longanswers
from gantry.model.route import QueueData
from gantry.model.topic import TopicConfig
from gantry.transport.client import shared
from gantry.wire import bodies, headers
from gantry.wire.codes import RequestCode
from gantry.wire.command import request

_KEPT_S = 10.0


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Who registers: the broker's names, id, epoch, and the addresses for clients and slaves."""

    cluster: str
    name: str
    id: int
    address: str
    ha_address: str
    epoch: int = 0


class RegistrationSource:
    """Makes the requests of registrations, from the table as it is then."""

    def __init__(self, identity: BrokerIdentity, topics: TopicTable) -> None:
        self.identity = identity
        self._topics = topics
        self._changes = 0
        self._encoding: tuple[int, asyncio.Task[bytes]] | None = None  # at which change it began
        self._end: asyncio.TimerHandle | None = None  # of the encoding, which may have megabytes

    @property
    def is_master(self) -> bool:
        """Whether it registers as the master of its group: name servers take topics from no one else."""
        return self.identity.id == 0

    def get(self, topic: str) -> TopicConfig | None:
        """Return a topic as it is registered; None when it does not exist."""
        return self._topics.get(topic)

    def note_change(self) -> None:
        """Encode the table again for all who ask from now on."""
        self._changes += 1

    def stand_as(self, broker_id: int, epoch: int) -> None:
        """Register with another broker id and epoch from now on."""
        self.identity = replace(self.identity, id=broker_id, epoch=epoch)
        self._changes += 1

    async def whole(self) -> Command:
        """Return a registration of the whole table (103); RefusedError when no frame holds it.

        Name servers that ask at the same time, or again because one of them does not answer, share one encoding.
        """
        ext = self._names() | {"haServerAddr": self.identity.ha_address, "compressed": "false"}
        if self._encoding is None or self._encoding[0] != self._changes:
            task = asyncio.ensure_future(self.encode())
            task.add_done_callback(self._forget_soon)
            self._encoding = (self._changes, task)
        body = await shared(self._encoding[1])
        return request(RequestCode.REGISTER_BROKER, ext | {"bodyCrc32": str(hashes.crc31(body))}, body)

    def single(self, topic: TopicConfig) -> Command:
        """Return a registration of one topic (217)."""
        queues = QueueData(self.identity.name, topic.read_queues, topic.write_queues, topic.perm, topic.sys_flag)
        # RocketMQ's header has the topic only.  Ours compares the address with the group's master.
        ext = headers.to_ext(topic=topic.name, brokerAddr=self.identity.address)
        body = bodies.dumps({"brokerDatas": [], "queueDatas": [queues.to_json()]})
        return request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, ext, body)

    def goodbye(self) -> Command:
        """Return the request that ends a registration (104)."""
        return request(RequestCode.UNREGISTER_BROKER, self._names())

    def _forget_soon(self, task: asyncio.Task[bytes]) -> None:
        is_in_vain = task.cancelled() or task.exception() is not None
        if self._encoding is None or self._encoding[1] is not task:
            return  # a newer one has taken its place
        if self._end is not None:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(0.0 if is_in_vain else _KEPT_S, self._forget)

    def _forget(self) -> None:
        self._encoding = self._end = None

    async def encode(self) -> bytes:
        """Return the body of a whole registration, made in slices; RefusedError when no frame holds it."""
        head = self._topics.head()
        if self.identity.epoch:
            version = head["dataVersion"]
            assert isinstance(version, dict)
            head |= {"dataVersion": version | {"stateVersion": self.identity.epoch}}
        # A topic that changes meanwhile is in it in either state, with the older version: it is registered after this.
        every = ((topic.name, topic.to_json()) for topic in self._topics.all())
        table = await longanswers.table(head, "topicConfigTable", every, "have fewer topics")
        return b'{"filterServerList":[],"topicConfigSerializeWrapper":' + table + b"}"

    def _names(self) -> dict[str, str]:
        identity = self.identity
        return headers.to_ext(
            brokerName=identity.name,
            brokerAddr=identity.address,
            clusterName=identity.cluster,
            brokerId=identity.id,
        )
