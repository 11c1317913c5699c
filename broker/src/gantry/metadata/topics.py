"""The table of topics, and how topics are created.

A topic is made by an administrator, by the broker for itself, or by the first message that is sent to it: then it takes
after the template that the send names (stock clients name TBW102), with at most as many queues as the client asks for.
RocketMQ: `TopicConfigManager`.

Every change makes a new data version, calls the listeners of `on_change` (registration at the name servers, caches of
the send path), and is saved with the next save; a change by an administrator is saved at once.  The document is
RocketMQ's `topics.json`.  A topic that the document lacks after a crash, but that has messages in the store, is created
again: its messages were acknowledged and have to be reachable.

The listeners of `on_delete` remove the queues of a deleted topic and its readers' offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from gantry.clock import Clock
from gantry.errors import Refusal
from gantry.metadata.state import State
from gantry.metadata.tablefile import TableFile
from gantry.model import documents, httpqueue, names
from gantry.model.topic import (
    PERM_INHERIT,
    PERM_READ_WRITE,
    TOPIC_SYS_UNIT,
    TOPIC_SYS_UNIT_SUB,
    DataVersion,
    TopicConfig,
)
from gantry.store.sortedlines import SortedLines
from gantry.wire.codes import ResponseCode

_SCHEDULE_QUEUES = 18  # one for each delay level
_BENCHMARK_QUEUES = 1024
_CLUSTER_QUEUES = 16
_REVIVE_QUEUES = 8
_CLIENT_QUEUES = 4  # RocketMQ: what a producer asks for when it makes a topic (defaultTopicQueueNums)


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of the table; in broker.conf: autoCreateTopicEnable, defaultTopicQueueNums, clusterTopicEnable, ..."""

    broker_name: str
    cluster_name: str
    auto_create: bool = True
    template_queues: int = 8
    is_cluster_topic_inherited: bool = True
    is_broker_topic_inherited: bool = True
    has_trace_topic: bool = False
    topics_max: int = 50_000


class Topics:
    """The table of topics.  Loop thread only."""

    def __init__(self, state: State, clock: Clock, settings: TopicSettings) -> None:
        self.data_version = DataVersion()
        self.file = TableFile(state, "topics.json", self._to_save)
        self._clock = clock
        self._settings = settings
        self._table: dict[str, TopicConfig] = {}
        self._lines = SortedLines()
        self._change_listeners: list[Callable[[str], None]] = []
        self._delete_listeners: list[Callable[[TopicConfig], None]] = []
        self.file.load(self._read)
        self._system = {config.name: config for config in _boot_topics(settings)}
        for config in self._system.values():
            # The document counts: an administrator may have edited it while the broker was stopped.
            if config.name not in self._table:
                self._change(config)

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Register a listener that is called with the name of a topic after it was made, changed or deleted."""
        self._change_listeners.append(listener)

    def on_delete(self, listener: Callable[[TopicConfig], None]) -> None:
        """Register a listener for deleted topics, with their last configuration; called before that of `on_change`."""
        self._delete_listeners.append(listener)

    def get(self, name: str) -> TopicConfig | None:
        """Return the configuration of this topic; None when it does not exist."""
        return self._table.get(name)

    def life_ms(self, name: str) -> int | None:
        """Return for how many ms after its birth a message of this topic lives; None: no limit (see `httpqueue`)."""
        topic = self._table.get(name)
        return None if topic is None or not topic.attributes else httpqueue.life_ms(topic.attributes)

    def is_http_queue(self, name: str) -> bool:
        """Return whether a topic is an HTTP queue."""
        topic = self._table.get(name)
        return topic is not None and httpqueue.is_queue(topic.attributes)

    def queues_of(self, name: str) -> int:
        """Return how many queues messages of this topic may have been sent to; 0 when it does not exist."""
        topic = self.get(name)
        return 0 if topic is None else topic.queue_count

    def names(self) -> list[str]:
        """All names, system topics too."""
        return list(self._table)

    def all(self) -> Iterator[TopicConfig]:
        """All topics, system topics too."""
        return iter(list(self._table.values()))

    def is_system(self, name: str) -> bool:
        """Whether the broker keeps this topic for itself."""
        return name in self._system or names.is_system_topic(name)

    def put(self, config: TopicConfig) -> Refusal | None:
        """Make or alter a topic whose name and numbers were checked; the table may be full."""
        if config.name not in self._table and self._is_full:
            return self._full()
        if self._table.get(config.name) != config:
            self._change(config)
        return None

    def ensure(self, config: TopicConfig) -> TopicConfig:
        """Create this topic unless one of its name exists; return the topic that exists afterwards.

        For topics that follow from something bounded already: a group's retry and dead-letter topics.
        """
        known = self._table.get(config.name)
        if known is not None:
            return known
        self._change(config)
        return config

    def auto_create(self, name: str, default_topic: str, default_queues: int, unit_mode: bool) -> TopicConfig | Refusal:
        """Create the topic that a send names, from the template that it names; 17 when there is no such template."""
        known = self._table.get(name)
        if known is not None:
            return known
        template = self._table.get(default_topic)
        is_allowed = self._settings.auto_create or default_topic != names.TEMPLATE_TOPIC
        if template is None or not template.is_inherited or not is_allowed:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")
        if self._is_full:
            return self._full()
        # RocketMQ makes a topic without queues when the client asks for none, to which nothing can ever be sent.
        queues = max(1, min(default_queues, template.write_queues))
        unit_flag = TOPIC_SYS_UNIT_SUB if names.is_retry_topic(name) else TOPIC_SYS_UNIT
        config = TopicConfig(
            name,
            read_queues=queues,
            write_queues=queues,
            perm=template.perm & ~PERM_INHERIT,
            filter_type=template.filter_type,
            sys_flag=unit_flag if unit_mode else 0,
        )
        self._change(config)
        return config

    def adopt(self, queues: Iterable[tuple[str, int]]) -> list[str]:
        """Create topics that have queues in the store and are missing here; return their names.

        Their settings were not saved before a crash: they get what a stock client asks for, and at least the queues
        that have messages.
        """
        counts: dict[str, int] = {}
        for name, queue_id in queues:
            if name not in self._table:
                counts[name] = max(counts.get(name, _queues_of(name)), queue_id + 1)
        for name, count in counts.items():
            self._change(TopicConfig(name, read_queues=count, write_queues=count, perm=PERM_READ_WRITE))
        return list(counts)

    def follow(self, name: str, value: object) -> None:
        """Take over the master's configuration of this name, or delete the topic for None.  ValueError: neither."""
        if value is None:
            self.delete(name)
            return
        config = replace(TopicConfig.from_json(value), name=name)
        if self._table.get(name) != config:
            self._change(config)

    def delete(self, name: str) -> bool:
        """Delete the topic and call the listeners; return False when there was none."""
        config = self._table.pop(name, None)
        if config is None:
            return False
        self._lines.remove(name)
        for listener in self._delete_listeners:
            listener(config)
        self._changed(name)
        return True

    def head(self) -> dict[str, object]:
        """Return the body of a registration without the topics."""
        return {
            "dataVersion": self.data_version.to_json(),
            "mappingDataVersion": DataVersion().to_json(),
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        }

    def _to_save(self) -> dict[str, object]:
        return {"dataVersion": self.data_version.to_json(), "topicConfigTable": self._lines.lines()}

    @property
    def _is_full(self) -> bool:
        return len(self._table) >= self._settings.topics_max

    def _full(self) -> Refusal:
        remark = f"there are {len(self._table)} topics, the limit is {self._settings.topics_max}"
        return Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def _change(self, config: TopicConfig) -> None:
        self._table[config.name] = config
        self._lines.put(config.name, config.to_json())
        self._changed(config.name)

    def _changed(self, name: str) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())
        self.file.is_changed = True
        for listener in self._change_listeners:
            listener(name)

    def _read(self, source: documents.Document) -> None:
        self.data_version = DataVersion.from_json(source.get("dataVersion"))
        for name, value in documents.mapping(source, "topicConfigTable").items():
            config = self._table[name] = replace(TopicConfig.from_json(value), name=name)
            self._lines.put(name, config.to_json())


def _queues_of(name: str) -> int:
    """How many queues a topic gets that comes into being by itself."""
    return 1 if names.is_retry_topic(name) or names.is_dlq_topic(name) else _CLIENT_QUEUES


def _boot_topics(settings: TopicSettings) -> Iterator[TopicConfig]:
    """The topics that are always there."""

    def topic(name: str, queues: int = 1, perm: int = PERM_READ_WRITE) -> TopicConfig:
        return TopicConfig(name, read_queues=queues, write_queues=queues, perm=perm)

    def inherited(is_template: bool) -> int:
        return PERM_READ_WRITE | (PERM_INHERIT if is_template else 0)

    yield topic(names.SELF_TEST_TOPIC)
    if settings.auto_create:
        yield topic(names.TEMPLATE_TOPIC, settings.template_queues, inherited(True))
    yield topic(names.BENCHMARK_TOPIC, _BENCHMARK_QUEUES)
    yield topic(settings.cluster_name, _CLUSTER_QUEUES, inherited(settings.is_cluster_topic_inherited))
    yield topic(settings.broker_name, 1, inherited(settings.is_broker_topic_inherited))
    yield topic(names.OFFSET_MOVED_TOPIC)
    yield topic(names.SCHEDULE_TOPIC, _SCHEDULE_QUEUES)
    if settings.has_trace_topic:
        yield topic(names.TRACE_TOPIC)
    yield topic(names.reply_topic(settings.cluster_name))
    yield topic(f"rmq_sys_REVIVE_LOG_{settings.cluster_name}", _REVIVE_QUEUES)
    yield topic(f"rmq_sys_SYNC_BROKER_MEMBER_{settings.broker_name}", 1, PERM_INHERIT)
    yield topic(names.HALF_TOPIC)
    yield topic(names.OP_HALF_TOPIC)
    yield topic(names.TIMER_TOPIC)
