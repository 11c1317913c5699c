"""What a member of a group knows about its lock on one queue.

The broker keeps a lock for 60 s after the owner's last request.  The owner works for 30 s after it *sent* the last
request that was granted: however late the answer came, and whatever happens to the network afterwards, it has stopped
half a minute before anybody else can be given the queue.  RocketMQ's clients count the same 30 s, from the answer.

No I/O and no clock: seconds that never go back are given to every call.
"""

from __future__ import annotations

NEVER = float("-inf")


class Lease:
    """One member's claim on one queue; made when the queue becomes the member's, and never used again after it left."""

    def __init__(self, valid_s: float) -> None:
        self._valid_s = valid_s
        self._until = NEVER
        self._asked_at = NEVER
        self._is_over = False

    def end(self) -> None:
        """The lock is about to be given back.  From now on nothing asks for it: a broker that is asked behind that
        would give it to us once more, and to nobody else for a minute.
        """
        self._until = NEVER
        self._is_over = True

    def asked(self, now: float) -> None:
        """A request leaves."""
        self._asked_at = now

    def granted(self, asked_at: float) -> None:
        """The answer to the request of `asked_at` was yes; an older one changes nothing."""
        if not self._is_over:
            self._until = max(self._until, asked_at + self._valid_s)

    def refused(self) -> None:
        """The answer was no: another member has the lock."""
        self._until = NEVER

    def is_held(self, now: float) -> bool:
        """Whether the queue may be worked on now."""
        return now < self._until

    def left_s(self, now: float) -> float:
        """How long it may be worked on; 0 when not at all."""
        return max(0.0, self._until - now)

    def is_due(self, now: float, renew_every_s: float, retry_every_s: float) -> bool:
        """Whether it is time to ask (again)."""
        every_s = renew_every_s if self.is_held(now) else retry_every_s
        return not self._is_over and now - self._asked_at >= every_s
