"""A topic as its broker configures it, and the version of a table of such things.

The JSON shapes are RocketMQ's `TopicConfig` and `DataVersion`: the same in requests, in registrations at the name
server and in `config/topics.json`.  Both are values; a change makes a new one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gantry.model import documents

PERM_INHERIT, PERM_WRITE, PERM_READ, PERM_PRIORITY = 1, 2, 4, 8
PERM_READ_WRITE = PERM_READ | PERM_WRITE

TOPIC_SYS_UNIT, TOPIC_SYS_UNIT_SUB = 1, 2

SINGLE_TAG = "SINGLE_TAG"
MULTI_TAG = "MULTI_TAG"

DEFAULT_QUEUES = 16


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """How many queues, who may do what, and the rest that clients are told."""

    name: str
    read_queues: int = DEFAULT_QUEUES
    write_queues: int = DEFAULT_QUEUES
    perm: int = PERM_READ_WRITE
    filter_type: str = SINGLE_TAG
    sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def is_readable(self) -> bool:
        """Return whether consumers may pull from the topic."""
        return self.perm & PERM_READ != 0

    @property
    def is_writable(self) -> bool:
        """Return whether producers should send to the topic."""
        return self.perm & PERM_WRITE != 0

    @property
    def is_inherited(self) -> bool:
        """Whether sending to an unknown topic may make one after this template."""
        return self.perm & PERM_INHERIT != 0

    @property
    def queue_count(self) -> int:
        """Return how many queues a message may have been sent to while the topic was as it is now; at least one."""
        return max(self.write_queues, self.read_queues, 1)

    def to_json(self) -> dict[str, object]:
        """Return the JSON object that RocketMQ's clients and tools expect."""
        return {
            "attributes": dict(self.attributes),
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queues,
        }

    @staticmethod
    def from_json(value: object) -> TopicConfig:
        """Read the topic from RocketMQ's JSON object; ValueError naming the field that is wrong."""
        source = documents.document(value, "a topic")
        return TopicConfig(
            name=documents.text(source, "topicName"),
            read_queues=documents.integer(source, "readQueueNums", DEFAULT_QUEUES),
            write_queues=documents.integer(source, "writeQueueNums", DEFAULT_QUEUES),
            perm=documents.integer(source, "perm", PERM_READ_WRITE),
            filter_type=documents.text(source, "topicFilterType", SINGLE_TAG),
            sys_flag=documents.integer(source, "topicSysFlag"),
            order=documents.boolean(source, "order"),
            attributes=documents.texts(source, "attributes"),
        )


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Which state of a table this is.  Two are the same only when all three numbers are."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0

    def next(self, now_ms: int) -> DataVersion:
        """The version after one more change."""
        return replace(self, counter=self.counter + 1, timestamp=now_ms)

    def to_json(self) -> dict[str, int]:
        """RocketMQ's shape; the counter has to be a plain number."""
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp}

    @staticmethod
    def from_json(value: object) -> DataVersion:
        """Read the version from RocketMQ's JSON object, the first one for None; ValueError naming the wrong field."""
        if value is None:
            return DataVersion()
        source = documents.document(value, "a data version")
        return DataVersion(
            documents.integer(source, "counter"),
            documents.integer(source, "stateVersion"),
            documents.integer(source, "timestamp"),
        )
