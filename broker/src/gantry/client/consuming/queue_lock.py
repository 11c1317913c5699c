"""A group member's view of its lock on one queue.

The broker keeps a lock for 60 s after the owner's last request.  The owner works for 30 s after it *sent* the last
request that was granted.  So it has stopped half a minute before another member can get the queue, even when the answer
was late or the network fails.  RocketMQ's clients count the same 30 s, but from the answer.

There is no I/O and no clock: callers pass in seconds of a monotonic clock.
"""

from __future__ import annotations

NEVER = float("-inf")


class Lease:
    """One member's lock on one queue; made when the queue is assigned to the member, and not reused after it left."""

    def __init__(self, valid_s: float) -> None:
        self._valid_s = valid_s
        self._until = NEVER
        self._asked_at = NEVER
        self._is_over = False

    def end(self) -> None:
        """Note that the lock is about to be given back, and ask for it no more.

        A later request would give the lock to this member again, and to no other member for a minute.
        """
        self._until = NEVER
        self._is_over = True

    def asked(self, now: float) -> None:
        """Note that a request for the lock is sent."""
        self._asked_at = now

    def granted(self, asked_at: float) -> None:
        """Note that the request of `asked_at` was granted; an older one changes nothing."""
        if not self._is_over:
            self._until = max(self._until, asked_at + self._valid_s)

    def refused(self) -> None:
        """Note that another member has the lock."""
        self._until = NEVER

    def is_held(self, now: float) -> bool:
        """Return whether the queue may be processed now."""
        return now < self._until

    def left_s(self, now: float) -> float:
        """Return for how many seconds the queue may be processed; 0 when not at all."""
        return max(0.0, self._until - now)

    def is_due(self, now: float, renew_every_s: float, retry_every_s: float) -> bool:
        """Return whether it is time to request the lock, again or for the first time."""
        every_s = renew_every_s if self.is_held(now) else retry_every_s
        return not self._is_over and now - self._asked_at >= every_s
