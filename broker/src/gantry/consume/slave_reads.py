"""Reading from slaves: which member of its group a reader is sent to, and how it is answered meanwhile.

A reader that is far behind makes its broker read from the disk; the master sends it to a slave, which sends it back
when it has caught up (RocketMQ: `slaveReadEnable`, suggestWhichBrokerId; "far" there is 40 % of memory, here the warm
window).

Two brokers of a group do not show the same end of a queue at the same time, and a member that just started shows less
than it has.  So a pull behind the shown end whose offset may be right is never answered with PULL_OFFSET_MOVED, which
would set the reader back:

    a slave, its master there    PULL_RETRY_IMMEDIATELY and the master's id: ask there
    a slave, its master away     held, as a master holds who has read everything
    a master                     held up to where it gave offsets out, while that is not confirmed yet
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gantry.store.fetched import Fetched, FetchStatus
from gantry.wire.codes import ResponseCode

MASTER = 0
NO_SERVING_LEASE = (
    "the serving lease of this master has ended: neither its register nor its slaves answer it, and another one may "
    "lead; ask for the route again"
)
_AHEAD = FetchStatus.OFFSET_OVERFLOW_BADLY
_MOVED = ResponseCode.PULL_OFFSET_MOVED


@dataclass(frozen=True, slots=True)
class SlaveReads:
    """The state of one broker of a group.  A broker without replicas has none: all reads are answered from its store.

    far_bytes      a reader that is further behind the log's end is sent to a slave
    slave_to_read  the id of a slave that may serve, MASTER when there is none
    is_alone       of a slave: its master is away
    head           where appends go on in a queue
    """

    broker_id: int
    far_bytes: int
    slave_to_read: Callable[[], int]
    is_alone: Callable[[], bool]
    head: Callable[[str, int], int]

    @property
    def is_slave(self) -> bool:
        """Return whether another broker is the master."""
        return self.broker_id != MASTER

    def suggested(self, lag_bytes: int) -> int:
        """The id of the broker that this reader should ask next."""
        if lag_bytes <= self.far_bytes:
            return MASTER
        return self.broker_id if self.is_slave else self.slave_to_read()

    def may_hold(self, topic: str, queue_id: int, offset: int, code: int, status: FetchStatus) -> bool:
        """Whether this pull waits for messages that are not shown yet."""
        if self.is_slave:
            return self.is_alone() and (code == ResponseCode.PULL_NOT_FOUND or status is _AHEAD)
        if code == _MOVED and status is not FetchStatus.OFFSET_TOO_SMALL:
            return offset <= self.head(topic, queue_id)
        return code == ResponseCode.PULL_NOT_FOUND

    def code(self, topic: str, queue_id: int, offset: int, code: int, fetched: Fetched) -> int:
        """Return the response code; a reader that is ahead of this broker keeps its offset."""
        is_ahead = code == _MOVED and fetched.status is not FetchStatus.OFFSET_TOO_SMALL
        if is_ahead and (self.is_slave or offset <= self.head(topic, queue_id)):
            fetched.next_offset = offset
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        if self.is_slave and (code == _MOVED or (code == ResponseCode.PULL_NOT_FOUND and not self.is_alone())):
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        return code
