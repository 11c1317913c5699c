"""Lines: one per delay level, in the order in which messages were stored, which is the order in which they are due.

A line's head is due when the time in its queue entry has come, by the steady clock.  That time is a store time plus the
level's duration, so it can only be further away than the duration if the level had a longer one.  Then the time in the
entry is ignored, and the message waits for the level's duration, by the monotonic clock, from the moment when that was
noticed: never early, at most twice as late.
"""

from __future__ import annotations

NEVER = 1 << 62


class Line:
    """One level's queue of the schedule topic; offsets are queue offsets."""

    __slots__ = ("_waits_from_s", "_waits_until", "delay_ms", "end", "head_ms", "kept", "level", "next")

    def __init__(self, level: int, delay_ms: int, at: int, end: int) -> None:
        self.level = level
        self.delay_ms = delay_ms
        self.next = at  # is delivered next
        self.kept = at  # everything before is delivered, and that is confirmed
        self.end = end
        self.head_ms = NEVER  # when the head is due
        self._waits_until = 0  # everything before this offset waits by the monotonic clock
        self._waits_from_s = 0.0

    @property
    def queue_id(self) -> int:
        """Return the id of this level's queue in the schedule topic."""
        return self.level - 1

    def is_due(self, offset: int, due_ms: int, now_ms: int, now_s: float, skipped_ms: int = 0) -> bool:
        """Whether the message at this offset, due then by its entry, is to be delivered.

        skipped_ms: by so much the clock was set forwards within the level's duration.
        """
        if due_ms <= now_ms - skipped_ms:
            return True
        if due_ms - now_ms <= self.delay_ms or due_ms == NEVER:
            return False
        if offset >= self._waits_until:
            self._waits_until, self._waits_from_s = self.end, now_s
        return (now_s - self._waits_from_s) * 1000 >= self.delay_ms
