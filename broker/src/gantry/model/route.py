"""Where a topic's queues are: what a name server answers and what a client makes of it.

A topic has queues on several broker groups; a group has one master (id 0) and slaves.  `TopicRoute` is RocketMQ's
`TopicRouteData` in its JSON shape; `MessageQueue` is one queue as clients speak of it, and its order, by topic, group
and number, is the order in which every member of a consumer group counts when they share the queues among themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gantry.leaves import fields
from gantry.model import documents
from gantry.model.topic import PERM_READ, PERM_WRITE

MASTER_ID = 0


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker group."""

    topic: str
    broker_name: str
    queue_id: int

    def to_json(self) -> dict[str, object]:
        """Return the JSON object that RocketMQ's clients and tools expect."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    @staticmethod
    def from_json(value: object) -> MessageQueue:
        """Read the queue from RocketMQ's JSON object; ValueError naming the field that is wrong."""
        source = documents.document(value, "a message queue")
        return MessageQueue(
            documents.text(source, "topic"), documents.text(source, "brokerName"), documents.integer(source, "queueId")
        )


@dataclass(frozen=True, slots=True)
class QueueData:
    """How many queues of a topic one broker group has."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int
    topic_sys_flag: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the JSON object that RocketMQ's clients and tools expect."""
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queues,
        }

    @staticmethod
    def from_json(value: object) -> QueueData:
        """Read the queues from RocketMQ's JSON object; ValueError naming the field that is wrong."""
        source = documents.document(value, "queue data")
        return QueueData(
            documents.text(source, "brokerName"),
            documents.integer(source, "readQueueNums"),
            documents.integer(source, "writeQueueNums"),
            documents.integer(source, "perm"),
            documents.integer(source, "topicSysFlag"),
        )


@dataclass(frozen=True, slots=True)
class BrokerData:
    """The members of one broker group, by id; 0 is the master."""

    cluster: str
    broker_name: str
    addresses: dict[int, str]
    enable_acting_master: bool = False
    zone: str = ""

    @property
    def master(self) -> str | None:
        """The master's address, if the group has one just now."""
        return self.addresses.get(MASTER_ID)

    def to_json(self) -> dict[str, object]:
        """RocketMQ's shape; ids are quoted, which every client reads."""
        document: dict[str, object] = {
            "brokerAddrs": {str(broker_id): address for broker_id, address in sorted(self.addresses.items())},
            "brokerName": self.broker_name,
            "cluster": self.cluster,
            "enableActingMaster": self.enable_acting_master,
        }
        if self.zone:
            document["zoneName"] = self.zone
        return document

    @staticmethod
    def from_json(value: object) -> BrokerData:
        """Read the group from RocketMQ's JSON object; ValueError naming the field that is wrong."""
        source = documents.document(value, "broker data")
        addresses: dict[int, str] = {}
        for key, address in documents.texts(source, "brokerAddrs").items():
            broker_id = fields.integer(key)
            if broker_id is None:
                raise ValueError(f"brokerAddrs has the broker id {key[:40]!r}")
            addresses[broker_id] = address
        return BrokerData(
            documents.text(source, "cluster"),
            documents.text(source, "brokerName"),
            addresses,
            documents.boolean(source, "enableActingMaster"),
            documents.text(source, "zoneName"),
        )


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """All broker groups that have queues of one topic."""

    queues: tuple[QueueData, ...] = ()
    brokers: tuple[BrokerData, ...] = ()
    order_conf: str | None = None
    filter_servers: dict[str, object] = field(default_factory=dict)

    def broker(self, broker_name: str) -> BrokerData | None:
        """Return the group of this name; None when the route has no such group."""
        return next((broker for broker in self.brokers if broker.broker_name == broker_name), None)

    def queues_to_write(self, topic: str) -> list[MessageQueue]:
        """The queues that a producer may send to, in order: writable ones whose group has a master."""
        masters = {broker.broker_name for broker in self.brokers if broker.master is not None}
        return sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in self.queues
            if data.perm & PERM_WRITE and data.broker_name in masters
            for queue_id in range(data.write_queues)
        )

    def queues_to_read(self, topic: str) -> list[MessageQueue]:
        """The queues that a consumer group shares, in order."""
        return sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in self.queues
            if data.perm & PERM_READ
            for queue_id in range(data.read_queues)
        )

    def to_json(self) -> dict[str, object]:
        """Return the JSON object that RocketMQ's clients and tools expect."""
        document: dict[str, object] = {
            "brokerDatas": [broker.to_json() for broker in self.brokers],
            "filterServerTable": dict(self.filter_servers),
            "queueDatas": [data.to_json() for data in self.queues],
        }
        if self.order_conf is not None:
            document["orderTopicConf"] = self.order_conf
        return document

    @staticmethod
    def from_json(value: object) -> TopicRoute:
        """Read the route from RocketMQ's JSON object; ValueError naming the field that is wrong."""
        source = documents.document(value, "a route")
        return TopicRoute(
            tuple(QueueData.from_json(data) for data in documents.array(source, "queueDatas")),
            tuple(BrokerData.from_json(broker) for broker in documents.array(source, "brokerDatas")),
            documents.text(source, "orderTopicConf") or None,
            dict(documents.mapping(source, "filterServerTable")),
        )
