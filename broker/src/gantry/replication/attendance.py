"""The state of one slave that is or was connected to a master; `in_sync_tracker` decides by it."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field

from gantry.replication.lateness import Lateness
from gantry.replication.members import Member
from gantry.wire.ha import Ack


@dataclass(slots=True, eq=False)
class Attendance:
    """The state of one slave that is or was connected.

    address       HOST:PORT; empty for a slave of the set that has not connected in this epoch
    floor         the newest change of the metadata that it has to hold before it joins: when its link began, or one
                  that an administrator was answered without it
    is_full       its disk has no room for the next segment
    is_proven     it holds what it was asked for when this link began; True for a slave that has not connected yet
    is_again      the former link ended before the slave was proven
    again_s       it is not admitted to the set before
    seen_s        the last acknowledgement; while `is_again`, when the first of these links began
    log, changes  how late its acknowledgements of the log and of the metadata are
    arrivals      how late it says that it has received the log, whether it is on its disk or not: that is its link
    """

    member: Member
    store_uid: str
    address: str
    slow_s: InitVar[float]
    now_s: InitVar[float]
    process: str = ""
    floor: int = 0
    is_full: bool = False
    held: int = field(default=0, init=False)
    metadata: int = field(default=0, init=False)
    received: int = field(default=0, init=False)
    is_connected: bool = field(init=False)
    is_proven: bool = field(init=False)
    is_again: bool = field(default=False, init=False)
    again_s: float = field(init=False)
    seen_s: float = field(init=False)
    log: Lateness = field(init=False)
    changes: Lateness = field(init=False)
    arrivals: Lateness = field(init=False)

    def __post_init__(self, slow_s: float, now_s: float) -> None:
        self.is_connected = bool(self.address)
        self.is_proven = not self.address
        self.again_s = self.seen_s = now_s
        self.log, self.changes, self.arrivals = (Lateness(slow_s, now_s) for _ in range(3))

    def go_on(self, former: Attendance) -> None:
        """Take over silence, lag and lateness of the same member's former link."""
        self.log, self.changes, self.arrivals = former.log, former.changes, former.arrivals
        if not former.is_proven:
            self.is_again, self.seen_s = True, former.seen_s

    def silent_s(self, now_s: float) -> float:
        """Return for how many seconds it has been away, or has reconnected without progress; 0 while its link works."""
        return now_s - self.seen_s if self.is_again or not self.is_connected else 0.0

    def acknowledge(self, ack: Ack, written: int, now_s: float) -> None:
        """Note an acknowledgement; our log ends at `written`."""
        self.changes.reached(ack.metadata, ack.metadata, now_s)
        self.held, self.metadata = ack.held, ack.metadata
        if self.metadata >= self.floor and self.held >= self.log.probe:
            self.is_proven, self.is_again = True, False
        if not self.is_again:
            self.seen_s = now_s
        self.log.reached(self.held, written, now_s)
        self.arrivals.reached(ack.written, written, now_s)
        self.received = ack.written

    def late_s(self, now_s: float) -> float:
        """Return how many seconds of lateness have added up, of the log or of the metadata."""
        return max(self.log.late_s(now_s), self.changes.late_s(now_s))

    def is_nearly_late(self, late_s: float, now_s: float) -> bool:
        """Return whether `late_s` seconds of lateness may soon have added up, of the log or of the metadata."""
        return self.log.is_near(late_s, now_s) or self.changes.is_near(late_s, now_s)

    def quick_s(self, now_s: float) -> float:
        """Return for how many seconds its acknowledgements have all been quick."""
        return min(self.log.quick_s(now_s), self.changes.quick_s(now_s))

    def forget(self) -> None:
        """Begin to add its lateness up again."""
        self.log.forget()
        self.changes.forget()
        self.arrivals.forget()
