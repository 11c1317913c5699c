"""Replies that wait until their messages are confirmed.

A run of messages that was appended has its replies encoded at once and parked under the log offset at which the
run ends; when the mark passes that offset they leave, one write per connection for all that was released together.
The mark may have passed already (ASYNC_FLUSH without slaves): then nothing is parked at all.  It is the confirmed one,
but for an ASYNC_MASTER with slaves, whose producers are answered at the master's own share.

Runs are parked in the order of the log, so the parked ones are a queue, sorted by offset and by age.  Two
things end the waiting early, and both answer with a code that says "stored here, outcome unknown" and carries
the same header: the time is over, or the store closes.  Which code that is says `why_late`: FLUSH_DISK_TIMEOUT,
FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE (RocketMQ: syncFlushTimeout, slaveTimeout).

Bounded: while more than `bytes_max` of replies are parked, a connection that parks more is not read from until half
of them have left.  So at most that much waits, and one read per connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.clock import Clock
from gantry.leaves import frames
from gantry.store.watermarks import Watermark
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

Replies = bytes | bytearray

_PAUSE = "acks"
LATENCY_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


def flush_is_late(end: int) -> int:
    """The code of a late message where there are no slaves: only the disk can be late."""
    return ResponseCode.FLUSH_DISK_TIMEOUT


@dataclass(frozen=True, slots=True)
class AckLimits:
    """How long a reply may wait, in seconds, and how many bytes of replies may wait in all."""

    wait_s: float = 5.0  # RocketMQ's syncFlushTimeout
    bytes_max: int = 64 << 20


class _Parked:
    """The replies of one run."""

    __slots__ = ("connection", "count", "end", "replies", "since")

    def __init__(self, end: int, connection: Connection, replies: Replies, count: int, since: float) -> None:
        self.end = end
        self.connection = connection
        self.replies = replies
        self.count = count
        self.since = since


class Acks:
    """Parks replies and releases them when a mark of the store passes; made for one opened store."""

    def __init__(
        self,
        mark: Watermark,
        clock: Clock,
        limits: AckLimits,
        why_late: Callable[[int], int],
        may_serve: Callable[[], bool] | None,
    ) -> None:
        """why_late: the code for a message that ends at this log offset and was not confirmed in time; may_serve: the
        serving lease of a master that answers before its slaves have the message, else None.
        """
        self.parked_bytes = 0
        self.acked = 0  # messages answered with SUCCESS
        self.late = 0  # messages answered with "outcome unknown"
        self.latencies = [0] * (len(LATENCY_BOUNDS_S) + 1)  # messages by how long their reply was parked
        self.latency_sum_s = 0.0
        self.mark = mark
        self._why_late = why_late
        self._may_serve = may_serve
        self._clock = clock
        self._limits = limits
        self._queue: deque[_Parked] = deque()
        self._paused: dict[Connection, None] = {}
        self._count = 0
        self._is_sealed = False
        mark.listen(self.release)

    def __len__(self) -> int:
        """How many messages wait for their reply."""
        return self._count

    def waits(self, end: int) -> bool:
        """Whether replies to what ends there have to wait."""
        return end > self.mark.offset or (self._may_serve is not None and not self._may_serve())

    def park(self, end: int, connection: Connection, replies: Replies, count: int) -> None:
        """Send the replies of `count` messages when the mark has passed `end`; maybe now."""
        if not self.waits(end):
            self.not_parked(count)
            connection.write(replies)
            return
        assert not self._queue or end >= self._queue[-1].end, "parked in the order of the log"
        self._queue.append(_Parked(end, connection, replies, count, self._clock.monotonic()))
        self._count += count
        self.parked_bytes += len(replies)
        if self.parked_bytes > self._limits.bytes_max:
            self._paused[connection] = None
            connection.pause_reading(_PAUSE)

    def not_parked(self, count: int) -> None:
        """Count replies that could leave at once."""
        self.acked += count
        self.latencies[0] += count

    def release(self, mark: int) -> None:
        """Send the replies to everything below the mark: one write per connection."""
        queue = self._queue
        if not queue or queue[0].end > mark or self._is_sealed:
            return
        if self._may_serve is not None and not self._may_serve():
            return
        now = self._clock.monotonic()
        outputs: dict[Connection, list[Replies]] = {}
        while queue and queue[0].end <= mark:
            parked = self._take_first()
            self._observe(now - parked.since, parked.count)
            outputs.setdefault(parked.connection, []).append(parked.replies)
        for connection, pieces in outputs.items():
            connection.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        self._let_read()

    def expire(self) -> None:
        """Answer replies that waited too long with "outcome unknown"; called four times a second.

        What the mark has passed is released first: it was parked, or kept, while the serving lease was over.
        """
        self.release(self.mark.offset)
        oldest = self._clock.monotonic() - self._limits.wait_s
        while self._queue and self._queue[0].since <= oldest:
            self._answer_unknown(f"not confirmed within {self._limits.wait_s:g} s; the outcome is unknown")
        self._let_read()

    def close(self, remark: str = "the store closes; the outcome is unknown") -> None:
        """Answer everything that waits with "outcome unknown": the store closes, or must be cut."""
        while self._queue:
            self._answer_unknown(remark)
        self._let_read()

    def seal(self) -> None:
        """Acknowledge nothing any more: this broker may no longer be the master.  A retry elsewhere may duplicate."""
        self._is_sealed = True
        self.mark = Watermark(-1)  # no log offset is below it
        # Never "slave not available": RocketMQ's Java client takes that for a success.
        self._why_late = lambda end: ResponseCode.SYSTEM_BUSY
        self.close("another master may lead by now; the outcome is unknown, a retry may duplicate")

    def _take_first(self) -> _Parked:
        parked = self._queue.popleft()
        self.parked_bytes -= len(parked.replies)
        self._count -= parked.count
        return parked

    def _answer_unknown(self, remark: str) -> None:
        parked = self._take_first()
        self.late += parked.count
        code = self._why_late(parked.end)
        _, replies = frames.decode(parked.replies, 0, len(parked.replies))
        for reply in replies:
            assert isinstance(reply, frames.Command)
            reply.code = code
            reply.remark = remark
            parked.connection.write(frames.encode(reply))

    def _observe(self, seconds: float, count: int) -> None:
        self.acked += count
        self.latency_sum_s += seconds * count
        for number, bound in enumerate(LATENCY_BOUNDS_S):
            if seconds <= bound:
                self.latencies[number] += count
                return
        self.latencies[-1] += count

    def _let_read(self) -> None:
        if self._paused and self.parked_bytes <= self._limits.bytes_max // 2:
            paused, self._paused = self._paused, {}
            for connection in paused:
                connection.resume_reading(_PAUSE)
