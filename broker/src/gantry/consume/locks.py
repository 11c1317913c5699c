"""Who may work on a queue: the locks of orderly consumers.

A queue of a topic has one lock for each consumer group.  It belongs to a client id, for a lease counted from its last
request; the owner asks again every 20 s and stops working by itself 30 s after its last success, well before the lease
of 60 s ends (RocketMQ: `RebalanceLockManager`; its clients have these times built in).  So there are never two workers,
even when an owner hangs, or cannot reach us while another one can.

A lock ends by its owner's UNLOCK_BATCH_MQ or with its lease, and in no other way.  That the owner's connection is gone,
or that it said goodbye, does not mean that its listener has stopped: it may come back over another connection and go
on, so nobody else gets the queue before the lease has ended.

Owners outlive the broker: the table is saved, and a lock that was loaded has a whole lease again, because its owner may
have worked on all the time.  Without that, the first member to reach a broker that came back could lock everything.
Not covered: a lock given in the last second before a crash, and after a failover a lock that slaves were not told of,
because its group has more of them than a frame of a link may have.

Anyone who is refused waits for the next round of its own.  So that it does not wait long, a lock that somebody was
refused tells `on_free` when it ends.  The table is bounded: when it is full, nobody gets a new lock.  Time is given to
every call, in seconds that never go back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gantry.errors import StoreError
from gantry.metadata.state import State
from gantry.model import documents

LEASE_S = 60.0  # RocketMQ: rocketmq.broker.rebalance.lockMaxLiveTime
LOCKS_MAX = 200_000
# Of a group's owners as a slave is told them: six bytes a character at most in JSON, and a frame may have 17 MiB.
_TOLD_CHARS_MAX, _ROW_CHARS = 5 << 19, 16
_SLICE = 200  # locks looked at between two looks at the clock

Key = tuple[str, int]
"""Topic and queue id."""


@dataclass(slots=True)
class QueueOwner:
    """One queue's owner in one group."""

    client_id: str
    renewed_at: float
    is_wanted: bool = False  # somebody else was refused it


class LockCounts:
    """What happened to locks since the start; read by the metrics."""

    __slots__ = ("expired", "granted", "refused", "released", "renewed")

    def __init__(self) -> None:
        self.granted = 0
        self.renewed = 0
        self.refused = 0
        self.released = 0
        self.expired = 0


class QueueLocks:
    """The locks of all groups; one owner, the event loop."""

    def __init__(self, state: State, now: float, lease_s: float = LEASE_S, locks_max: int = LOCKS_MAX) -> None:
        self.counts = LockCounts()
        self.lease_s = lease_s
        self._state = state
        self._locks_max = locks_max
        self._groups: dict[str, dict[Key, QueueOwner]] = {}
        self._count = 0
        self._listeners: list[Callable[[str], None]] = []
        self._is_changed = False
        self.touched: set[str] | None = None  # groups whose owners changed, where somebody takes them
        self._load(state.load(), now)

    def __len__(self) -> int:
        return self._count

    def on_free(self, listener: Callable[[str], None]) -> None:
        """Hear of each group of which a lock ended that somebody was refused."""
        self._listeners.append(listener)

    def lock(self, group: str, client_id: str, key: Key, now: float) -> bool:
        """Take the lock or keep it for another lease; false when it is somebody else's, or the table is full."""
        locks = self._groups.get(group)
        held = None if locks is None else locks.get(key)
        if held is not None and held.client_id == client_id:
            # After the lease too: nobody took it meanwhile, so nothing happened that the owner must know of.
            held.renewed_at = now
            self.counts.renewed += 1
            return True
        if held is not None and now - held.renewed_at <= self.lease_s:
            held.is_wanted = True
            self.counts.refused += 1
            return False
        if held is None and self._count >= self._locks_max:
            self.counts.refused += 1
            return False
        self._count += held is None
        self.counts.expired += held is not None
        self._groups.setdefault(group, {})[key] = QueueOwner(client_id, now)
        self.counts.granted += 1
        self._touch(group)
        return True

    def unlock(self, group: str, client_id: str, key: Key) -> bool:
        """The owner has stopped working on the queue; false when the lock is not its own."""
        locks = self._groups.get(group)
        held = None if locks is None else locks.get(key)
        if locks is None or held is None or held.client_id != client_id:
            return False
        self._remove(group, locks, key)
        self.counts.released += 1
        if held.is_wanted:
            self._tell(group)
        return True

    def owner(self, group: str, key: Key, now: float) -> str | None:
        """Who may work on the queue; None when nobody has to be asked."""
        held = self._groups.get(group, {}).get(key)
        return held.client_id if held is not None and now - held.renewed_at <= self.lease_s else None

    def holds_any(self, group: str, now: float) -> bool:
        """Whether the group consumes in order now: somebody in it has a lock."""
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
                # Looked up again: others had the loop meanwhile.
                if locks.get(key) is held and now - held.renewed_at > self.lease_s:
                    self._remove(group, locks, key)
                    self.counts.expired += 1
                    is_wanted |= held.is_wanted
            if is_wanted:
                self._tell(group)

    def to_document(self) -> dict[str, object]:
        """What is saved: owners, and no times."""
        return {
            "lockTable": {
                group: [
                    {"clientId": held.client_id, "queueId": queue_id, "topic": topic}
                    for (topic, queue_id), held in locks.items()
                ]
                for group, locks in self._groups.items()
            }
        }

    def save_if_changed(self) -> None:
        """Hand the owners to the disk when one changed since the last time, or could not be saved then."""
        if self._is_changed:
            self._is_changed = False
            self._state.save(self.to_document())
        else:
            self._state.retry()

    def save_now(self) -> None:
        """Put the owners on the disk before returning; for shutdown."""
        self._is_changed = False
        self._state.save_now(self.to_document())

    def _remove(self, group: str, locks: dict[Key, QueueOwner], key: Key) -> None:
        del locks[key]
        self._count -= 1
        self._touch(group)
        if not locks and self._groups.get(group) is locks:
            del self._groups[group]

    def keys(self) -> list[str]:
        """The groups that have locks."""
        return list(self._groups)

    def value(self, group: str) -> list[list[object]] | None:
        """A group's owners as a slave is told them, the first ones of too many; None when there are none."""
        locks = self._groups.get(group)
        if locks is None:
            return None
        rows: list[list[object]] = []
        room = _TOLD_CHARS_MAX
        for (topic, queue_id), held in locks.items():
            room -= len(topic) + len(held.client_id) + _ROW_CHARS
            if room < 0:
                break  # one frame carries all of a thing, and a slave that is sent a longer one can never follow
            rows.append([topic, queue_id, held.client_id])
        return rows

    def follow(self, group: str, value: object, now: float) -> None:
        """The owners that the master knows; None for nobody.  ValueError: neither.

        A slave gives no locks and lets none expire: what counts is that a start as master finds them.
        """
        owners: dict[Key, QueueOwner] = {}
        for row in [] if value is None else value if isinstance(value, list) else [value]:
            match row:
                case [str(topic), int(queue_id), str(client_id)]:
                    owners[topic, queue_id] = QueueOwner(client_id, now)
                case _:
                    raise ValueError(f"{str(row)[:80]} is no lock of {group}")
        self._count += len(owners) - len(self._groups.pop(group, {}))
        if owners:
            self._groups[group] = owners
        self._touch(group)

    def _touch(self, group: str) -> None:
        self._is_changed = True
        if self.touched is not None:
            self.touched.add(group)

    def _tell(self, group: str) -> None:
        for listener in self._listeners:
            listener(group)

    def _load(self, document: Mapping[str, object] | None, now: float) -> None:
        if document is None:
            return
        try:
            for group in documents.mapping(document, "lockTable"):
                for item in documents.array(documents.mapping(document, "lockTable"), group):
                    source = documents.document(item, f"a lock of {group}")
                    key = (documents.text(source, "topic"), documents.integer(source, "queueId"))
                    self._groups.setdefault(group, {})[key] = QueueOwner(documents.text(source, "clientId"), now)
        except ValueError as error:
            raise StoreError(f"queueLocks.json: {error}") from error
        self._count = sum(map(len, self._groups.values()))
