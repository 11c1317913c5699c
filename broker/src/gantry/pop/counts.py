"""What happened to popped messages since the start: counts for metrics, each changed in the turn in which it happened.

Counts of messages and of requests are not mixed: `pops`, `empty`, `refused` and `cold` are requests, the others
messages.  Nothing here is kept over a restart, and no decision reads it.

Records of leases and acknowledgements (`stored`, `handled`) are counted by the kinds that RocketMQ's metrics have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gantry.leaves.leases import Key
    from gantry.pop.records import LeaseKey

LEASE, ACK = "CK", "ACK"  # RocketMQ's PopReviveMessageType


class PopCounts:
    """Counts of requests and messages, some by topic and group: of those that exist, so these tables are bounded."""

    __slots__ = (
        "_exist",
        "acked",
        "by_group",
        "changed",
        "cold",
        "dead",
        "discarded",
        "empty",
        "expired",
        "handled",
        "lost",
        "moved",
        "pops",
        "refused",
        "retried",
        "revived",
        "stale",
        "stored",
    )

    def __init__(self, exist: Callable[[str, str], bool] = lambda group, topic: True) -> None:
        """exist: whether there are a group and a topic of these names."""
        self._exist = exist
        self.pops = 0  # answered with messages
        self.empty = 0  # answered without
        self.refused = 0
        self.acked = 0  # messages
        self.stale = 0  # handles that were not valid any more
        self.changed = 0  # messages that got another time
        self.revived = 0  # messages put into a retry topic
        self.dead = 0  # messages put into a dead-letter topic
        self.lost = 0  # messages of ended leases whose record is gone
        self.expired = 0  # messages of ended leases whose life is over
        self.moved = 0  # messages of HTTP queues copied to the log's end because their segment is about to go
        self.discarded = 0  # open messages of deleted topics and groups
        self.cold = 0  # pops that waited for the disk
        self.by_group: dict[tuple[str, str], list[int]] = {}  # (topic, group) -> [messages, bytes] popped
        self.stored: dict[tuple[str, str, str], int] = {}  # (topic, group, kind) -> records appended
        self.handled: dict[tuple[str, str, str, int], int] = {}  # the same and the revive queue -> records handled
        self.retried: dict[tuple[str, str], int] = {}  # (topic, group) -> copies in its retry topic

    def popped(self, topic: str, group: str, messages: int, sent_bytes: int) -> None:
        """Count an answer with messages of the topic or of its retry topic."""
        self.pops += 1
        counted = self.by_group.setdefault((topic, group), [0, 0])
        counted[0] += messages
        counted[1] += sent_bytes

    def store(self, key: LeaseKey, kind: str) -> None:
        """Count a record about a lease that was appended."""
        at = key.topic, key.group, kind
        self.stored[at] = self.stored.get(at, 0) + 1

    def handle_all(self, passed: Sequence[tuple[Key, bool] | None], revive_queue: int) -> None:
        """Count records of a revive queue that were handled: of which lease, and whether they are the lease itself."""
        last, count = None, 0
        for one in passed:
            kind = None if one is None else (one[0][0], one[0][1], one[1])
            if kind != last:
                self._handled(last, count, revive_queue)
                last, count = kind, 0
            count += 1
        self._handled(last, count, revive_queue)

    def _handled(self, kind: tuple[str, str, bool] | None, count: int, revive_queue: int) -> None:
        if kind is not None and self._exist(kind[0], kind[1]):
            at = kind[1], kind[0], LEASE if kind[2] else ACK, revive_queue
            self.handled[at] = self.handled.get(at, 0) + count

    def forget_gone(self) -> None:
        """Forget what was counted of groups and topics that are deleted by now."""
        tables: list[dict[Any, Any]] = [self.by_group, self.stored, self.handled, self.retried]
        for table in tables:
            for at in [at for at in table if not self._exist(at[1], at[0])]:
                del table[at]

    def retry(self, group: str, topic: str, copies: int) -> None:
        """Count copies of messages of a topic in the group's retry topic."""
        self.retried[topic, group] = self.retried.get((topic, group), 0) + copies
