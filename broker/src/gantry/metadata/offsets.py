"""Where each consumer group stands: the next queue offset of every group, topic and queue.

A commit changes memory at once and the disk on the next save, every five seconds: after a crash a group may
see again what it committed since, and never misses anything.  The document is RocketMQ's `consumerOffset.json`,
keyed `topic@group`, with queue ids as integer keys; parts of it that belong to other features are carried along
unread, so that a folder can go back to Apache's broker.

Who commits decides: an offset may be set back, which is how tools reset a group (RocketMQ:
`ConsumerOffsetManager.commitOffset` logs it and obeys).  A deleted topic takes all offsets in it
along, as its queues begin anew should it come back; a deleted group loses them only when asked to.

A group that is reset while its members work is *marked* queue by queue: until a member has been told, at its next
pull at the latest, commits in that queue count for nothing, because they speak of what was before.  RocketMQ 5:
`resetOffsetTable`, which the document has a place for.

After a crash an offset may count messages that the crash took, because ASYNC_FLUSH shows what is not durable yet.
The queue's next messages get those numbers again, and a group that went on behind them would miss them: so `bound`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gantry.clock import Clock
from gantry.errors import StoreError
from gantry.leaves import fields
from gantry.metadata.state import State
from gantry.model import documents
from gantry.model.topic import DataVersion
from gantry.store.statefile import Lines, line

NOT_COMMITTED = -1

_SLICE_KEYS = 64  # a third of a millisecond with eight queues each
_CARRIED_ALONG = ("pullOffsetTable",)


class Offsets:
    """The committed offsets of all groups; one owner, the event loop."""

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._table: dict[str, dict[int, int]] = {}
        self._carried: dict[str, object] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._told: set[tuple[str, int]] = set()  # marks whose members also got a request to move
        self._version = DataVersion()
        self._is_changed = False
        self._saves = 0
        self.went_back = 0
        self._load(state.load())

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember the next offset that the group wants of this queue."""
        key = f"{topic}@{group}"
        if self._resets and queue_id in self._resets.get(key, {}):
            return
        queues = self._table.get(key)
        if queues is None:
            queues = self._table[key] = {}
        known = queues.get(queue_id, NOT_COMMITTED)
        if known == offset:
            return
        if offset < known:
            self.went_back += 1
        queues[queue_id] = offset
        self._is_changed = True

    @property
    def has_resets(self) -> bool:
        """Whether any queue of any group is marked; asked with every pull."""
        return bool(self._resets)

    def reset(self, group: str, topic: str, queue_id: int, offset: int, *, marks: bool) -> None:
        """Let the group go on at this offset; with `marks` the queue's member has to be told."""
        key = f"{topic}@{group}"
        self._unmark(key, queue_id)
        self.commit(group, topic, queue_id, offset)
        if marks:
            self._resets.setdefault(key, {})[queue_id] = offset
            self._is_changed = True

    def was_told(self, group: str, topic: str, queue_id: int) -> bool:
        """The queue's member was sent there, or asked for the offset: whoever pulls there now has moved.

        False when the queue is not marked.
        """
        key = f"{topic}@{group}"
        if queue_id not in self._resets.get(key, {}):
            return False
        self._told.add((key, queue_id))
        return True

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether commits in this queue count for nothing now."""
        return queue_id in self._resets.get(f"{topic}@{group}", {})

    def take_reset(self, group: str, topic: str, queue_id: int, pulled: int) -> int | None:
        """Where whoever pulls this queue at `pulled` has to go on instead, once; None when it is right there."""
        key = f"{topic}@{group}"
        target = self._resets.get(key, {}).get(queue_id)
        if target is None:
            return None
        has_moved = pulled == target and (key, queue_id) in self._told
        self._unmark(key, queue_id)
        return None if has_moved else target

    def _unmark(self, key: str, queue_id: int) -> None:
        marked = self._resets.get(key, {})
        if marked.pop(queue_id, None) is None:
            return
        self._told.discard((key, queue_id))
        self._is_changed = True
        if not marked:
            del self._resets[key]

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset, or NOT_COMMITTED."""
        queues = self._table.get(f"{topic}@{group}")
        return NOT_COMMITTED if queues is None else queues.get(queue_id, NOT_COMMITTED)

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """All committed offsets of a group in a topic, by queue id."""
        return self._table.get(f"{topic}@{group}", {})

    def all(self) -> Iterator[tuple[str, str, Mapping[int, int]]]:
        """Every (group, topic, offsets by queue id)."""
        for key, queues in self._table.items():
            topic, _, group = key.partition("@")
            yield group, topic, queues

    def groups_of(self, topic: str) -> list[str]:
        """The groups that ever committed an offset of this topic."""
        return [group for group, name, _ in self.all() if name == topic]

    def topics_of(self, group: str) -> list[str]:
        """The topics that the group ever committed an offset of."""
        return [topic for owner, topic, _ in self.all() if owner == group]

    def clone(self, source: str, target: str, topic: str) -> None:
        """Put one group where another stands."""
        for queue_id, offset in list(self.of(source, topic).items()):
            self.commit(target, topic, queue_id, offset)

    def bound(self, end_of: Callable[[str, int], int]) -> list[str]:
        """Set back whoever stands behind the end of a queue, to the end; the `topic@group` of those."""
        bounded = []
        for key, queues in self._table.items():
            topic = key.partition("@")[0]
            ends = {queue_id: end_of(topic, queue_id) for queue_id in queues}
            ahead = {queue_id: end for queue_id, end in ends.items() if queues[queue_id] > end}
            if ahead:
                queues.update(ahead)
                for queue_id in ahead:
                    self._unmark(key, queue_id)
                bounded.append(key)
        self._is_changed = self._is_changed or bool(bounded)
        return bounded

    def remove_topic(self, topic: str) -> None:
        """Forget a topic for every group: should it be made again, its queues begin anew, and an old offset would
        let a group miss all messages up to it.
        """
        self._remove([key for key in self._table if key.partition("@")[0] == topic])

    def remove_group(self, group: str) -> None:
        """Forget a group everywhere; it starts as a new one would."""
        self._remove([key for key in self._table if key.partition("@")[2] == group])

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            del self._table[key]
            self._resets.pop(key, None)
            self._told = {told for told in self._told if told[0] != key}
            self._is_changed = True

    def to_body(self) -> dict[str, object]:
        """The document, as saved and as answered to GET_ALL_CONSUMER_OFFSET."""
        return self._document({key: dict(queues) for key, queues in self._table.items()})

    def _document(self, table: object) -> dict[str, object]:
        return {
            "dataVersion": self._version.to_json(),
            "offsetTable": table,
            "resetOffsetTable": {key: dict(queues) for key, queues in self._resets.items()},
            **{name: self._carried.get(name, {}) for name in _CARRIED_ALONG},
        }

    def save_if_changed(self) -> None:
        """Hand the document to the disk when a commit came since the last time, or what came could not be saved."""
        if not self._is_changed:
            self._state.retry()
            return
        self._close_version()
        self._save({key: dict(queues) for key, queues in self._table.items()})

    def saving(self) -> Iterator[None]:
        """The same in slices; 24 000 offsets take 13 ms.  What comes meanwhile may wait for the next save."""
        if not self._is_changed:
            self._state.retry()
            return
        self._close_version()
        saves = self._saves
        entries = Lines()
        for number, key in enumerate(sorted(self._table), 1):
            queues = self._table.get(key)
            if queues is not None:
                entries.append(line(key, queues))
            if number % _SLICE_KEYS == 0:
                yield
        if self._saves == saves:
            self._save(entries)
        else:
            # Somebody who removed offsets had the table saved meanwhile: these entries are older.
            self._is_changed = True

    def save_now(self) -> None:
        """Put the document on the disk before returning; for shutdown."""
        self._close_version()
        self._saves += 1
        self._state.save_now(self.to_body())

    def _save(self, table: object) -> None:
        self._saves += 1
        self._state.save(self._document(table))

    def _close_version(self) -> None:
        """A version is what is saved, not every commit."""
        if self._is_changed:
            self._version = self._version.next(self._clock.now_ms())
            self._is_changed = False

    def _load(self, document: object | None) -> None:
        if document is None:
            return
        try:
            source = documents.document(document, "the document")
            self._version = DataVersion.from_json(source.get("dataVersion"))
            self._carried = {name: source[name] for name in _CARRIED_ALONG if name in source}
            self._table = _by_queue(source, "offsetTable")
            self._resets = _by_queue(source, "resetOffsetTable")
        except ValueError as error:
            raise StoreError(f"consumerOffset.json: {error}") from error


def _by_queue(source: documents.Document, name: str) -> dict[str, dict[int, int]]:
    table: dict[str, dict[int, int]] = {}
    for key, value in documents.mapping(source, name).items():
        queues = documents.document(value, f"{name} of {key}")
        table[key] = {_queue_id(queue): documents.integer(queues, queue) for queue in queues}
    return table


def _queue_id(name: str) -> int:
    queue_id = fields.integer(name)
    if queue_id is None:
        raise ValueError(f"{name[:40]!r} is no queue id")
    return queue_id
