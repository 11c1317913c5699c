"""The table of consumer groups and their configurations.

A group is created when a consumer of it first appears, unless that is switched off (RocketMQ:
`autoCreateSubscriptionGroup`), or by an administrator.  The groups that RocketMQ's tools use are always there.  The
document is RocketMQ's `subscriptionGroup.json`; its table of forbidden topics is kept and obeyed for reading.

The groups of HTTP queues and of subscriptions to HTTP topics are made without dead letters: a broker that was away, or
is new, meets them first with a pop, and the server that pops counts attempts itself.

`ensure` is called for every pull and is one look-up for a group that exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from gantry.clock import Clock
from gantry.errors import Refusal
from gantry.metadata.state import State
from gantry.metadata.tablefile import TableFile
from gantry.model import documents, httpqueue, httptopic, names
from gantry.model.subscription import GroupConfig
from gantry.model.topic import PERM_READ, DataVersion
from gantry.store.sortedlines import SortedLines
from gantry.wire.codes import ResponseCode


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of the table; `auto_create` is RocketMQ's autoCreateSubscriptionGroup."""

    auto_create: bool = True
    groups_max: int = 50_000


class Groups:
    """The table of consumer groups.  Loop thread only."""

    def __init__(self, state: State, clock: Clock, settings: GroupSettings) -> None:
        self.data_version = DataVersion()
        self.file = TableFile(state, "subscriptionGroup.json", self._to_save)
        self._clock = clock
        self._settings = settings
        self._table: dict[str, GroupConfig] = {}
        # group -> topic -> forbidden permissions (RocketMQ: forbiddenTable).
        self._forbidden: dict[str, dict[str, int]] = {}
        self._lines = SortedLines()
        self._change_listeners: list[Callable[[str], None]] = []
        self.file.load(self._read)
        for name in sorted(names.SYSTEM_GROUPS - self._table.keys()):
            self._change(GroupConfig(name))

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Register a listener that is called with the name of a group after it was made, changed or deleted."""
        self._change_listeners.append(listener)

    def get(self, name: str) -> GroupConfig | None:
        """Return the configuration of this group; None when it does not exist."""
        return self._table.get(name)

    def all(self) -> Iterator[GroupConfig]:
        """All groups, system groups too."""
        return iter(list(self._table.values()))

    def ensure(self, name: str) -> GroupConfig | None:
        """The group, made with defaults if need be, RocketMQ's for most; None when it may not be made."""
        known = self._table.get(name)
        if known is not None:
            return known
        is_allowed = self._settings.auto_create or names.is_system_group(name)
        if not is_allowed or self._is_full or names.group_fault(name) is not None:
            return None
        is_over_http = name == httpqueue.GROUP or name.startswith(httptopic.GROUP_PREFIX)
        config = GroupConfig(name, retry_times_max=httpqueue.RETRIES_MAX) if is_over_http else GroupConfig(name)
        self._change(config)
        return config

    def retry_times_max(self, name: str) -> int | None:
        """How often the group gets a message again, or None for a group that does not exist."""
        config = self._table.get(name)
        return None if config is None else config.retry_times_max

    def put(self, config: GroupConfig) -> Refusal | None:
        """Make or alter a group whose name was checked; the table may be full."""
        known = self._table.get(config.name)
        if known is None and self._is_full:
            remark = f"there are {len(self._table)} groups, the limit is {self._settings.groups_max}"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if known != config:
            self._change(config)
        return None

    def follow(self, name: str, value: object) -> None:
        """Take over the master's configuration of this name, or delete the group for None.  ValueError: neither."""
        if value is None:
            self.delete(name)
            return
        config = replace(GroupConfig.from_json(value), name=name)
        if self._table.get(name) != config:
            self._change(config)

    def delete(self, name: str) -> bool:
        """Delete the group; return False when there was none."""
        if self._table.pop(name, None) is None:
            return False
        self._lines.remove(name)
        self._forbidden.pop(name, None)
        self._changed(name)
        return True

    def forbids_reading(self, name: str, topic: str) -> bool:
        """Whether this group may not read this topic."""
        topics = self._forbidden.get(name)
        return topics is not None and topics.get(topic, 0) & PERM_READ != 0

    def head(self) -> dict[str, object]:
        """The document without the groups."""
        return {
            "dataVersion": self.data_version.to_json(),
            "forbiddenTable": {name: dict(topics) for name, topics in self._forbidden.items()},
        }

    def to_document(self) -> dict[str, object]:
        """Return the JSON document that is written to subscriptionGroup.json."""
        return self.head() | {
            "subscriptionGroupTable": {name: config.to_json() for name, config in self._table.items()},
        }

    def _to_save(self) -> dict[str, object]:
        return self.head() | {"subscriptionGroupTable": self._lines.lines()}

    @property
    def _is_full(self) -> bool:
        return len(self._table) >= self._settings.groups_max

    def _change(self, config: GroupConfig) -> None:
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
        for name, value in documents.mapping(source, "subscriptionGroupTable").items():
            config = self._table[name] = replace(GroupConfig.from_json(value), name=name)
            self._lines.put(name, config.to_json())
        self._forbidden = _forbidden_in(documents.mapping(source, "forbiddenTable"))


def _forbidden_in(table: Mapping[str, object]) -> dict[str, dict[str, int]]:
    groups = {name: documents.document(value, f"forbiddenTable of {name}") for name, value in table.items()}
    return {name: {topic: documents.integer(topics, topic) for topic in topics} for name, topics in groups.items()}
