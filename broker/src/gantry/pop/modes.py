"""How groups read topics, by pull or by pop: the table messageRequestMode.json.

An administrator sets the mode of a group for a topic (SET_MESSAGE_REQUEST_MODE); a pair without one has the default.
Clients that leave balancing to the server get it with their queues (`assignments`).  A retry topic is always pulled,
because a group that pops gets its retries with the topic itself.

The document is RocketMQ's.  Slaves get each entry by the journal, so a new master knows all.  Entries of a topic or
group that was deleted are removed.  Source: RocketMQ's `MessageRequestModeManager`; facts 4.8 and 9.8 of the protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gantry.errors import Refusal
from gantry.metadata.state import State
from gantry.metadata.tablefile import TableFile
from gantry.model import documents
from gantry.pop.assignment import POP, PULL, Mode
from gantry.store.lineblocks import LineBlocks
from gantry.store.statefile import encode, line
from gantry.wire.codes import ResponseCode

ENTRIES_MAX = 100_000
SHARE_QUEUES = range(-1, 1 << 20)  # RocketMQ: an int; -1 and 0 mean all


class Modes:
    """The table of modes.  Loop thread only."""

    def __init__(self, state: State, entries_max: int = ENTRIES_MAX) -> None:
        self.file = TableFile(state, "messageRequestMode.json", self._to_save)
        self._lines: LineBlocks[tuple[str, str]] = LineBlocks(
            lambda key: None if (mode := self.get(*key)) is None else _document(*key, mode),
            lambda key, value: line(key[1], value),
            lambda key: key[0],
            around=lambda topic: (f"{encode(topic)}: {{", "}"),
        )
        self.touched: set[str] | None = None  # `topic@group` of changed entries, for replication; None without
        self.changes = 0  # since the start
        self._entries_max = entries_max
        self._topics: dict[str, dict[str, Mode]] = {}  # topic -> group
        self._count = 0
        self.file.load(self._read)

    def __len__(self) -> int:
        return self._count

    def get(self, topic: str, group: str) -> Mode | None:
        """Return what an administrator set for this group and topic; None when nothing was set."""
        groups = self._topics.get(topic)
        return None if groups is None else groups.get(group)

    def put(self, topic: str, group: str, mode: Mode) -> Refusal | None:
        """Set the mode; the table may be full."""
        if self.get(topic, group) is None and self._count >= self._entries_max:
            remark = f"modes of {self._count} groups and topics are set, which is the limit; delete groups without use"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        self._set(topic, group, mode)
        return None

    def forget_topic(self, topic: str) -> None:
        """Remove the entries of a topic that was deleted."""
        for group in list(self._topics.get(topic, ())):
            self._set(topic, group, None)

    def forget_group(self, group: str) -> None:
        """Remove the entries of a group that was deleted."""
        for topic in [topic for topic, groups in self._topics.items() if group in groups]:
            self._set(topic, group, None)

    def saving(self, *, always: bool = False) -> Iterator[None]:
        """Save the document when something changed, in slices that cost what has changed.

        always: also when nothing changed, because a save that is under way may have it, and not have ended.
        """
        if not always and not self.file.is_changed:
            self.file.save_if_changed()  # what could not be saved
            return
        yield from self.file.save_in_slices(self._lines.encode(), self._document)

    def _to_save(self) -> dict[str, object]:
        for _ in self._lines.encode():
            pass
        return self._document()

    def _document(self) -> dict[str, object]:
        """Return the document in the form of RocketMQ's messageRequestMode.json, of texts that are encoded already."""
        return {"messageRequestModeMap": self._lines.members()}

    def topics(self) -> list[str]:
        """Return the topics that have entries."""
        return list(self._topics)

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have an entry for a topic."""
        return list(self._topics.get(topic, ()))

    def keys(self) -> list[str]:
        """Return the key `topic@group` of every entry."""
        return [f"{topic}@{group}" for topic, groups in self._topics.items() for group in groups]

    def value(self, key: str) -> dict[str, object] | None:
        """Return an entry as it is sent to slaves; None when there is none."""
        topic, _, group = key.partition("@")
        mode = self.get(topic, group)
        return None if mode is None else _document(topic, group, mode)

    def follow(self, key: str, value: object) -> None:
        """Take over the master's entry of this `topic@group`; None removes it.  ValueError: neither."""
        topic, _, group = key.partition("@")
        self._set(topic, group, None if value is None else mode_of(documents.document(value, f"mode of {key}")))

    def _set(self, topic: str, group: str, mode: Mode | None) -> None:
        groups = self._topics.setdefault(topic, {})
        if groups.get(group) != mode:
            self._count += (mode is not None) - (group in groups)
            if mode is None:
                del groups[group]
            else:
                groups[group] = mode
            self._lines.changed.add((topic, group))
            self.changes += 1
            self.file.is_changed = True
            if self.touched is not None:
                self.touched.add(f"{topic}@{group}")
        if not groups:
            del self._topics[topic]

    def _read(self, source: documents.Document) -> None:
        for topic, groups in documents.mapping(source, "messageRequestModeMap").items():
            found: Iterable[tuple[str, object]] = documents.document(groups, f"topic {topic}").items()
            for group, value in found:
                self._set(topic, group, mode_of(documents.document(value, f"mode of {topic}@{group}")))


def mode_of(source: documents.Document) -> Mode:
    """Return the mode of an entry as RocketMQ writes it; ValueError for one that does not exist."""
    mode, share_queues = documents.text(source, "mode", PULL), documents.integer(source, "popShareQueueNum")
    if mode not in (PULL, POP):
        raise ValueError(f"mode is {mode[:40]!r}, {PULL} or {POP} is allowed")
    if share_queues not in SHARE_QUEUES:
        raise ValueError(f"popShareQueueNum is {share_queues}, from -1 to {SHARE_QUEUES[-1]} are allowed")
    return Mode(mode, share_queues)


def _document(topic: str, group: str, mode: Mode) -> dict[str, object]:
    return {"consumerGroup": group, "mode": mode.mode, "popShareQueueNum": mode.share_queues, "topic": topic}
