"""What happened to popped messages since the start: counts for metrics, each changed in the turn in which it happened.

Counts of messages and of requests are not mixed: `pops`, `empty`, `refused` and `cold` are requests, the others
messages.  Nothing here is kept over a restart, and no decision reads it.
"""

from __future__ import annotations


class PopCounts:
    """Counts of requests and messages; by (topic, group) where both are known, so the table is bounded."""

    __slots__ = (
        "acked",
        "by_group",
        "changed",
        "cold",
        "dead",
        "discarded",
        "empty",
        "lost",
        "pops",
        "refused",
        "revived",
        "stale",
    )

    def __init__(self) -> None:
        self.pops = 0  # answered with messages
        self.empty = 0  # answered without
        self.refused = 0
        self.acked = 0  # messages
        self.stale = 0  # handles that were not valid any more
        self.changed = 0  # messages that got another time
        self.revived = 0  # messages put into a retry topic
        self.dead = 0  # messages put into a dead-letter topic
        self.lost = 0  # messages of ended leases whose record is gone
        self.discarded = 0  # open messages of deleted topics and groups
        self.cold = 0  # pops that waited for the disk
        self.by_group: dict[tuple[str, str], list[int]] = {}  # (topic, group) -> [messages, bytes] popped

    def popped(self, topic: str, group: str, messages: int, sent_bytes: int) -> None:
        """Count an answer with messages of the topic or of its retry topic."""
        self.pops += 1
        counted = self.by_group.setdefault((topic, group), [0, 0])
        counted[0] += messages
        counted[1] += sent_bytes
