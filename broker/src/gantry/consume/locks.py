"""Queue locks of orderly consumers: which client may consume a queue.

A queue of a topic has one lock for each consumer group.  It belongs to a client id, for a lease counted from its last
request.  The owner asks again every 20 s and stops consuming 30 s after its last success, well before the lease of 60 s
ends (RocketMQ: `RebalanceLockManager`; its clients have these times built in).  So two clients never consume a queue at
the same time, even when an owner hangs, or cannot reach us while another one can.

A lock ends only by its owner's UNLOCK_BATCH_MQ or with its lease.  When the owner's connection is closed, or it has
unregistered, its listener may still be running: it may come back over another connection and go on.  So no other
client gets the queue before the lease has ended.

Owners are kept over a restart: the table is saved, and a loaded lock has a whole lease again, because its owner may
have gone on all the time.  Otherwise the first member that reaches a restarted broker could lock everything.
A grant is answered when it is durable, at the in-sync slaves too (`lock_handlers`); renewals change nothing that is
saved.  Not covered: after a failover a lock that slaves did not get, because its group has more of them than fit into a
frame.

A client that is refused asks again in its next round.  So that it does not wait long, the listeners of `on_free` are
called when a lock ends that another client was refused.  The table is bounded: when it is full, no new lock is given.
Every call gets the time, in seconds that never go back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gantry.metadata.state import State
from gantry.metadata.tablefile import TableFile
from gantry.model import documents
from gantry.store.lineblocks import LineBlocks
from gantry.store.statefile import encode

LEASE_S = 60.0  # RocketMQ: rocketmq.broker.rebalance.lockMaxLiveTime
LOCKS_MAX = 200_000
# Of a group's owners as they are sent to a slave: at most six bytes a character in JSON, and a frame may have 17 MiB.
_TOLD_CHARS_MAX, _ROW_CHARS = 5 << 19, 16
_SLICE = 200  # locks that are checked between two turns of the loop

Key = tuple[str, int]
"""Topic and queue id."""


@dataclass(slots=True)
class QueueOwner:
    """One queue's owner in one group."""

    client_id: str
    renewed_at: float
    grant: int = 0  # its number among the grants since the start; 0: from before
    is_wanted: bool = False  # another client was refused it


class LockCounts:
    """Counters of locks since the start; read by the metrics."""

    __slots__ = ("expired", "granted", "refused", "released", "renewed")

    def __init__(self) -> None:
        self.granted = 0
        self.renewed = 0
        self.refused = 0
        self.released = 0
        self.expired = 0


class QueueLocks:
    """The locks of all groups.  Loop thread only."""

    def __init__(self, state: State, now: float, lease_s: float = LEASE_S, locks_max: int = LOCKS_MAX) -> None:
        self.counts = LockCounts()
        self.lease_s = lease_s
        self.file = TableFile(state, "queueLocks.json", self.to_document)
        self._locks_max = locks_max
        self._groups: dict[str, dict[Key, QueueOwner]] = {}
        self._lines: LineBlocks[tuple[str, str, int]] = LineBlocks(
            self._saved_as,
            lambda key, value: encode(value),
            lambda key: key[0],
            around=lambda group: (f"{encode(group)}: [", "]"),
        )
        self._count = 0
        self.changes = 0  # of owners, since the start
        self._handed_over = 0  # changes that were in a document that went to the disk
        self._listeners: list[Callable[[str], None]] = []
        self.touched: set[str] | None = None  # groups whose owners changed, for replication; None without
        self.file.load(lambda document: self._read(document, now))

    def __len__(self) -> int:
        return self._count

    def on_free(self, listener: Callable[[str], None]) -> None:
        """Register a listener that is called with a group after a lock ended that another client was refused."""
        self._listeners.append(listener)

    def lock(self, group: str, client_id: str, key: Key, now: float) -> bool:
        """Take the lock or renew its lease; return False when another client has it, or the table is full."""
        locks = self._groups.get(group)
        held = None if locks is None else locks.get(key)
        if held is not None and held.client_id == client_id:
            # After the lease too: no other client took it meanwhile, so nothing has changed for the owner.
            held.renewed_at = now
            self.counts.renewed += 1
            return True
        if held is not None and now - held.renewed_at <= self.lease_s:
            held.is_wanted = True
            self.counts.refused += 1
            return False
        # A group may have as many as are left for others: one alone gets half of the table.
        if held is None and len(locks or ()) >= self._locks_max - self._count:
            self.counts.refused += 1
            return False
        self._count += held is None
        self.counts.expired += held is not None
        self.counts.granted += 1
        self._groups.setdefault(group, {})[key] = QueueOwner(client_id, now, self.counts.granted)
        self._touch(group, key)
        return True

    def unlock(self, group: str, client_id: str, key: Key) -> bool:
        """Release the lock of its owner; return False when another client, or none, has it."""
        locks = self._groups.get(group)
        held = None if locks is None else locks.get(key)
        if locks is None or held is None or held.client_id != client_id:
            return False
        self._remove(group, locks, key)
        self.counts.released += 1
        if held.is_wanted:
            self._tell(group)
        return True

    def grant(self, group: str, key: Key) -> int:
        """Return the number of the grant by which a queue has its owner; 0 when that is older than this start."""
        held = self._groups.get(group, {}).get(key)
        return 0 if held is None else held.grant

    def owner(self, group: str, key: Key, now: float) -> str | None:
        """Return the client id of the lock's owner; None when the queue is not locked."""
        held = self._groups.get(group, {}).get(key)
        return held.client_id if held is not None and now - held.renewed_at <= self.lease_s else None

    def holds_any(self, group: str, now: float) -> bool:
        """Return whether a member of the group has a lock: then the group consumes in order."""
        return any(now - held.renewed_at <= self.lease_s for held in self._groups.get(group, {}).values())

    def expire(self, now: float) -> Iterator[None]:
        """Forget the locks whose lease has ended; a generator, resumed while there is time."""
        looked = 0
        for group in list(self._groups):
            is_wanted = False
            locks = self._groups.get(group, {})
            for key, held in list(locks.items()):
                looked += 1
                if looked % _SLICE == 0:
                    yield
                # Looked up again: other tasks ran meanwhile.
                if locks.get(key) is held and now - held.renewed_at > self.lease_s:
                    self._remove(group, locks, key)
                    self.counts.expired += 1
                    is_wanted |= held.is_wanted
            if is_wanted:
                self._tell(group)

    def saving(self, *, always: bool = False) -> Iterator[None]:
        """Save the document when something changed, in slices.

        always: also when another save that is under way may have it, and has not handed it to the disk.
        """
        if not self.file.is_changed and not (always and self._handed_over < self.changes):
            self.file.save_if_changed()  # what could not be saved
            return
        changes = self.changes
        yield from self.file.save_in_slices(self._lines.encode(), lambda: {"lockTable": self._lines.members()})
        self._handed_over = max(self._handed_over, changes)

    def _saved_as(self, key: tuple[str, str, int]) -> dict[str, object] | None:
        group, topic, queue_id = key
        held = self._groups.get(group, {}).get((topic, queue_id))
        return None if held is None else {"clientId": held.client_id, "queueId": queue_id, "topic": topic}

    def to_document(self) -> dict[str, object]:
        """Return the JSON document that is saved: owners without times."""
        return {
            "lockTable": {
                group: [
                    {"clientId": held.client_id, "queueId": queue_id, "topic": topic}
                    for (topic, queue_id), held in locks.items()
                ]
                for group, locks in self._groups.items()
            }
        }

    def _remove(self, group: str, locks: dict[Key, QueueOwner], key: Key) -> None:
        del locks[key]
        self._count -= 1
        self._touch(group, key)
        if not locks and self._groups.get(group) is locks:
            del self._groups[group]

    def keys(self) -> list[str]:
        """The groups that have locks."""
        return list(self._groups)

    def value(self, group: str) -> list[list[object]] | None:
        """Return a group's owners as they are sent to a slave, at most a frame of them; None when there are none."""
        locks = self._groups.get(group)
        if locks is None:
            return None
        rows: list[list[object]] = []
        room = _TOLD_CHARS_MAX
        for (topic, queue_id), held in locks.items():
            room -= len(topic) + len(held.client_id) + _ROW_CHARS
            if room < 0:
                break  # one frame carries a whole entry, and a slave could never apply a longer one
            rows.append([topic, queue_id, held.client_id])
        return rows

    def follow(self, group: str, value: object, now: float) -> None:
        """Take over the master's owners of a group; None removes all.  ValueError: neither.

        A slave gives no locks and lets none expire; they are kept for a later start as master.
        """
        owners: dict[Key, QueueOwner] = {}
        for row in [] if value is None else value if isinstance(value, list) else [value]:
            match row:
                case [str(topic), int(queue_id), str(client_id)]:
                    owners[topic, queue_id] = QueueOwner(client_id, now)
                case _:
                    raise ValueError(f"{str(row)[:80]} is no lock of {group}")
        former = self._groups.pop(group, {})
        self._count += len(owners) - len(former)
        if owners:
            self._groups[group] = owners
        self._touch(group, *former, *owners)

    def _touch(self, group: str, *keys: Key) -> None:
        self.file.is_changed = True
        self.changes += 1
        self._lines.changed.update((group, *key) for key in keys)
        if self.touched is not None:
            self.touched.add(group)

    def _tell(self, group: str) -> None:
        for listener in self._listeners:
            listener(group)

    def _read(self, document: documents.Document, now: float) -> None:
        for group in documents.mapping(document, "lockTable"):
            for item in documents.array(documents.mapping(document, "lockTable"), group):
                source = documents.document(item, f"a lock of {group}")
                key = (documents.text(source, "topic"), documents.integer(source, "queueId"))
                self._groups.setdefault(group, {})[key] = QueueOwner(documents.text(source, "clientId"), now)
        self._lines.fill((group, *key) for group, locks in self._groups.items() for key in locks)
        self._count = sum(map(len, self._groups.values()))
