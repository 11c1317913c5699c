"""Compiled filters of consumer groups: the table of RocketMQ's `consumerFilter.json`.

A group's expression on a topic is compiled when a heartbeat first brings it, not at a pull.  It is marked dead when the
topic leaves the group's subscription or the last consumer leaves, and is removed a day later.  A consumer that comes
back with the same version revives it.  The file is written once a second when something changed.  After a start
all entries count as dead until a heartbeat revives them.  Source: `ConsumerFilterManager`.

    an older or equal version      is ignored, except that an equal one revives
    a newer version, same text     updates the version
    a newer version, other text    replaces; if it does not compile, the old expression is removed without a new one

So a group whose expression is wrong has no entry here: its pulls are refused with FILTER_DATA_NOT_EXIST (27), and the
position of the fault is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.clock import Clock
from gantry.consume import bloom
from gantry.consume.filter import compiled, is_tag_filter
from gantry.consume.sql92.program import Program
from gantry.metadata.clients import ConsumerGroup
from gantry.metadata.state import State
from gantry.metadata.tablefile import TableFile
from gantry.model import documents
from gantry.model.subscription import Subscription
from gantry.store.lineblocks import LineBlocks
from gantry.store.statefile import encode, line

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

DEAD_MS_MAX = 24 * 3_600_000
_LOOK_EVERY_MS = 60_000
_LOOKED_AT_ONCE = 200
_ENTRIES_MAX = 50_000  # dead ones included
_CHARS_MAX = 8 << 20  # of all expressions; some 50 bytes each when compiled
_DEAD_BEFORE_START_MS = 30_000  # RocketMQ's guess of when the consumers of a stopped broker left


@dataclass(slots=True)
class FilterData:
    """One group's expression on one topic; alive while `dead_ms` is before `born_ms`."""

    topic: str
    group: str
    expression_type: str
    expression: str
    version: int
    born_ms: int
    program: Program
    dead_ms: int = 0

    @property
    def is_dead(self) -> bool:
        """Return whether no consumer of the group subscribes with this expression now."""
        return self.dead_ms >= self.born_ms


class ConsumerFilters:
    """The table of filters.  Loop thread only.  `complain` gets a cause and a text, and limits logs by cause."""

    def __init__(self, state: State, clock: Clock, complain: Callable[[str, str], None]) -> None:
        self.faults = 0  # expressions in heartbeats that did not compile
        self.file = TableFile(state, "consumerFilter.json", self.to_document)
        self._clock = clock
        self._complain = complain
        self._table: dict[str, dict[str, FilterData]] = {}  # group -> topic
        self._lines: LineBlocks[tuple[str, str]] = LineBlocks(
            lambda key: None if (data := self.get(*key)) is None else _document(data),
            lambda key, value: line(key[1], value),
            lambda key: key[0],
            around=lambda topic: (f'{encode(topic)}: {{"groupFilterData": {{', f'}}, "topic": {encode(topic)}}}'),
        )
        self._count = self._chars = 0
        self._look_ms = 0  # when dead entries are removed next
        self.touched: set[str] | None = None  # `topic@group` of changed filters, for replication; None without
        self.file.load(self._load)

    def __len__(self) -> int:
        return self._count

    def get(self, topic: str, group: str) -> FilterData | None:
        """Return the group's filter of this topic; None when it has none."""
        topics = self._table.get(group)
        return None if topics is None else topics.get(topic)

    def heard(self, _: Connection, beating: ConsumerGroup, subscriptions: Iterable[Subscription]) -> None:
        """Take over the subscriptions of a heartbeat; these are all that the group has."""
        group = beating.name
        named = set()
        for subscription in subscriptions:
            named.add(subscription.topic)
            if not is_tag_filter(subscription.expression_type):
                self._register(group, subscription)
        self._bury([data for topic, data in self._table.get(group, {}).items() if topic not in named])

    def group_changed(self, group: ConsumerGroup) -> None:
        """Mark the filters of a group without members as dead."""
        if not group.members:
            self._bury(self._table.get(group.name, {}).values())

    def saving(self) -> Iterator[None]:
        """Remove filters that were dead for a day, and save the document when something changed, in slices."""
        now_ms = self._clock.now_ms()
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + _LOOK_EVERY_MS
            for number, data in enumerate(self._all(), 1):
                if data.is_dead and now_ms - data.dead_ms > DEAD_MS_MAX and self.get(data.topic, data.group) is data:
                    self._remove(data)
                if number % _LOOKED_AT_ONCE == 0:
                    yield
        if self.file.is_changed:
            yield from self.file.save_in_slices(
                self._lines.encode(), lambda: {"filterDataByTopic": self._lines.members()}
            )
        else:
            self.file.save_if_changed()  # what could not be saved

    def to_document(self) -> dict[str, object]:
        """Return the document in the form of RocketMQ's consumerFilter.json."""
        topics: dict[str, dict[str, object]] = {}
        for data in self._all():
            topics.setdefault(data.topic, {})[data.group] = _document(data)
        by_topic = {topic: {"groupFilterData": groups, "topic": topic} for topic, groups in topics.items()}
        return {"filterDataByTopic": by_topic}

    def keys(self) -> list[str]:
        """Return the key `topic@group` of every filter."""
        return [f"{data.topic}@{data.group}" for data in self._all()]

    def value(self, key: str) -> dict[str, object] | None:
        """Return a filter as it is sent to slaves; None when there is none."""
        topic, _, group = key.partition("@")
        data = self.get(topic, group)
        return None if data is None else _document(data)

    def follow(self, key: str, value: object) -> None:
        """Take over the master's filter of this `topic@group`; None removes it.  ValueError: neither.

        A newer expression from a consumer of this broker is kept: the master is going to get it too.
        """
        topic, _, group = key.partition("@")
        known = self.get(topic, group)
        source = None if value is None else documents.document(value, f"filter of {key}")
        if known is not None and (source is None or documents.integer(source, "clientVersion") >= known.version):
            self._remove(known)
            known = None
        if source is not None and known is None and (data := self._read(topic, group, source)) is not None:
            self._add(data)

    def _touch(self, data: FilterData) -> None:
        self.file.is_changed = True
        self._lines.changed.add((data.topic, data.group))
        if self.touched is not None:
            self.touched.add(f"{data.topic}@{data.group}")

    def _register(self, group: str, wanted: Subscription) -> None:
        known = self.get(wanted.topic, group)
        if known is not None and wanted.version <= known.version:
            if wanted.version == known.version and known.is_dead:
                known.dead_ms = 0
                self._touch(known)
            return
        if known is not None and (known.expression_type, known.expression) == (
            wanted.expression_type,
            wanted.expression,
        ):
            known.version, known.dead_ms = wanted.version, 0
            self._touch(known)
            return
        program = compiled(wanted.expression_type, wanted.expression)
        if known is not None:
            self._remove(known)
        if isinstance(program, str):
            self.faults += 1
            self._complain(
                f"filter of {group} on {wanted.topic}",
                f"group {group} filters topic {wanted.topic} by {wanted.expression[:200]!r}, refused: {program}",
            )
        elif self._count >= _ENTRIES_MAX or self._chars + len(wanted.expression) > _CHARS_MAX:
            what = f"{self._count} filters of {self._chars} characters are kept"
            self._complain(
                "filters are full", f"{what}, the limits are {_ENTRIES_MAX} and {_CHARS_MAX}: group {group} gets none"
            )
        else:
            born_ms = self._clock.now_ms()
            self._add(
                FilterData(
                    wanted.topic, group, wanted.expression_type, wanted.expression, wanted.version, born_ms, program
                )
            )

    def _add(self, data: FilterData) -> None:
        self._table.setdefault(data.group, {})[data.topic] = data
        self._count += 1
        self._chars += len(data.expression)
        self._touch(data)

    def _remove(self, data: FilterData) -> None:
        topics = self._table[data.group]
        del topics[data.topic]
        if not topics:
            del self._table[data.group]
        self._count -= 1
        self._chars -= len(data.expression)
        self._touch(data)

    def _bury(self, found: Iterable[FilterData]) -> None:
        for data in found:
            if not data.is_dead:
                data.dead_ms = self._clock.now_ms()
                self._touch(data)

    def _all(self) -> list[FilterData]:
        return [data for topics in self._table.values() for data in topics.values()]

    def _load(self, source: documents.Document) -> None:
        for topic, value in documents.mapping(source, "filterDataByTopic").items():
            groups = documents.mapping(documents.document(value, f"topic {topic}"), "groupFilterData")
            for group, found in groups.items():
                data = self._read(topic, group, documents.document(found, f"group {group}"))
                if data is not None:
                    data.dead_ms = data.dead_ms or max(data.born_ms, self._clock.now_ms() - _DEAD_BEFORE_START_MS)
                    self._add(data)

    def _read(self, topic: str, group: str, source: documents.Document) -> FilterData | None:
        expression_type = documents.text(source, "expressionType")
        expression = documents.text(source, "expression")
        program = compiled(expression_type, expression)
        if isinstance(program, str):
            self._complain(
                f"filter of {group} on {topic}",
                f"consumerFilter.json: group {group}, topic {topic}: {expression[:200]!r} is left out: {program}",
            )
            return None
        born_ms = documents.integer(source, "bornTime")
        version = documents.integer(source, "clientVersion")
        dead_ms = documents.integer(source, "deadTime")
        return FilterData(topic, group, expression_type, expression, version, born_ms, program, dead_ms)


def _document(data: FilterData) -> dict[str, object]:
    return {
        "bloomFilterData": {"bitNum": bloom.BITS, "bitPos": bloom.positions(data.group, data.topic)},
        "bornTime": data.born_ms,
        "clientVersion": data.version,
        "consumerGroup": data.group,
        "deadTime": data.dead_ms,
        "expression": data.expression,
        "expressionType": data.expression_type,
        "topic": data.topic,
    }
