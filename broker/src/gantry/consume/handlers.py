"""Handling pulls, a run at a time: they are answered at once, held, or refused.

PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361) are the same here; Java's lite pull consumer has a number of its own so
that its pulls can wait in another queue.

Everything happens without a pause on the loop: checks, one look-up in the store, one write.  The messages are sent as
they are in the log, as views of the mapped file; nothing is copied here.

A pull that finds nothing new may be held (see `hold`).  The offset that it commits is stored once, when it first comes.
When it is woken it looks once more, and the result is the answer.  A pull far behind the end of the log
is answered at once when its messages are in the page cache.  Else it waits until the cold reader has brought them in,
because a page fault on the loop that waits for a disk stops all requests.

A peer that does not read its answers, or asks for very much at once, gets no more bytes: it is told to pull again
from the same offset, which it does when it has read that far.  RocketMQ drops the answer instead and lets the
client time out.  What the cold reader reads for one connection at a time is bounded as well (see `cold`), and after the
read the peer is checked again.

An SQL filter reads records, so its pull fetches all of them first, brings them in if they are cold, and then keeps
those that match.  All pulls that come together share a millisecond for that; each of them examines a few messages at
least, and its reply says where to go on.

Per pull of 32 messages of 1 KiB, pure leaves: checks 1 us, header 1 us, the rest is the store and the socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gantry.clock import Clock
from gantry.consume.cold import ColdPulls
from gantry.consume.filter import Wanted
from gantry.consume.grouprates import GroupRates
from gantry.consume.hold import HeldPull, HeldPulls
from gantry.consume.pull import COMMIT_OFFSET, SUSPEND, PullChecks, PullRefusal, code_of, reply_head
from gantry.consume.slave_reads import NO_SERVING_LEASE, SlaveReads
from gantry.consume.sql92.program import Program
from gantry.leaves import frames
from gantry.metadata.commits import GroupCommits
from gantry.store.fetched import Fetched, FetchStatus
from gantry.store.store import Store
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply

if TYPE_CHECKING:
    from gantry.leaves.frames import Pull
    from gantry.transport.connection import Connection


@dataclass(frozen=True, slots=True)
class PullLimits:
    """How much one pull may take and how many may wait.

    RocketMQ stops at 32 messages (8 from disk) whatever the client asks for; here a client gets what it asks for
    within these bounds, because catching up by eights from disk takes forever.
    """

    count_max: int = 1024
    bytes_default: int = 256 << 10  # when the pull does not say; RocketMQ's bound for messages in memory
    bytes_max: int = 4 << 20
    # What comes together goes out together, and must stay well below what makes a connection too slow to keep.
    run_bytes_max: int = 8 << 20
    # What is read from the disk for one connection at a time, and one pull more; the others wait for their turn.
    cold_bytes_max: int = 4 << 20
    held_max: int = 100_000
    # Stock clients time out after 30 s by default, so none of their pulls asks for more than this.
    suspend_ms_max: int = 60_000
    # What an SQL filter may look at for one pull; RocketMQ's bound is 800 as well.
    sifted_max: int = 800
    sifted_bytes_max: int = 8 << 20


_NO_SERVING_LEASE = PullRefusal(ResponseCode.SYSTEM_BUSY, NO_SERVING_LEASE)
# A consumer that catches up waits for the disk once for so much, not once for each pull.
_AHEAD_BYTES = 4 << 20
# Long work goes in slices of a millisecond.
_SIFT_S = 0.001


def _next_turn(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)


class PullCounts:
    """Counters of pulls since the start; read by the metrics."""

    __slots__ = ("by_group", "bytes", "cold", "found", "messages", "missed", "refused", "sifted", "sifted_out", "woken")

    def __init__(self) -> None:
        self.found = 0
        self.missed = 0
        self.refused = 0
        self.woken = 0
        self.cold = 0
        self.sifted = 0  # messages that SQL filters examined, and those that did not match
        self.sifted_out = 0
        self.messages = 0
        self.bytes = 0
        # (topic, group) -> [messages, bytes]; both names passed the checks, so the table is bounded by the metadata's.
        self.by_group: dict[tuple[str, str], list[int]] = {}

    def found_some(self, pull: Pull, messages: int, sent_bytes: int) -> None:
        """Count a pull that was answered with this many messages and bytes."""
        self.found += 1
        self.messages += messages
        self.bytes += sent_bytes
        key = (pull.topic, pull.group)
        group = self.by_group.get(key)
        if group is None:
            group = self.by_group[key] = [0, 0]
        group[0] += messages
        group[1] += sent_bytes


class PullHandlers:
    """Answers pulls; the hot path of consumers."""

    def __init__(
        self,
        store: Store,
        checks: PullChecks,
        commits: GroupCommits,
        clock: Clock,
        settings: PullLimits,
        slave_reads: SlaveReads | None,
        may_serve: Callable[[], bool],
    ) -> None:
        """slave_reads: of a member of a group; may_serve: whether this broker may answer readers now."""
        self.held = HeldPulls(settings.held_max, self._wake, self._expire, _next_turn)
        bring_in = partial(store.bring_in, ahead_bytes=_AHEAD_BYTES)
        self.cold = ColdPulls(bring_in, self._again, settings.cold_bytes_max, settings.held_max)
        self.counts = PullCounts()
        self.rates = GroupRates(self.counts.by_group, clock)
        self._slave_reads = slave_reads
        self._may_serve = may_serve
        self._store = store
        self._checks = checks
        self.commits = commits
        self._offsets = commits.offsets
        self._clock = clock
        self._settings = settings
        self._sift_until: float | None = None  # monotonic; None: no filter ran yet in this turn

    def pull_run(self, connection: Connection, pulls: list[Pull]) -> None:
        """Answer, hold or refuse each of the pulls that came together."""
        begun = self.counts.bytes
        self._sift_until = None
        for pull in pulls:
            if self.counts.bytes - begun > self._settings.run_bytes_max:
                self._send_back(connection, pull)
            else:
                self._answer(connection, pull, self._checks.wanted(pull), may_wait=True)

    def _wake(self, held: HeldPull) -> None:
        self.counts.woken += 1
        if not self._may_answer(held.connection, held.pull):
            return
        pull, alike = held.pull, held.alike
        wanted = self._checks.wanted(pull)
        # Nothing in between matches, unless the subscription has changed by now.
        if wanted is alike.wanted and alike.passed > pull.queue_offset:
            pull.queue_offset = alike.passed
        self._answer(held.connection, pull, wanted, may_wait=False)

    def _again(self, connection: Connection, pull: Pull) -> None:
        """Handle a pull again that waited for its turn to read from the disk."""
        if self._may_answer(connection, pull):
            self._answer(connection, pull, self._checks.wanted(pull), may_wait=False)

    def _may_answer(self, connection: Connection, pull: Pull) -> bool:
        """Return whether a pull that waited may be answered now; if not, a refusal was sent on an open connection."""
        self._sift_until = None
        if connection.closed:
            return False
        if not self._may_serve():
            self._refuse(connection, pull, _NO_SERVING_LEASE)
            return False
        return True

    def _expire(self, held: HeldPull) -> None:
        """Answer a held pull whose time is over; usually there is nothing new, and no other check is needed."""
        pull = held.pull
        if (
            not self._store.reader.is_all_read(pull.topic, pull.queue_id, pull.queue_offset)
            or self._offsets.is_marked(pull.topic)
            or not self._may_serve()
            or not held.connection.is_writable
        ):
            self._wake(held)
            return
        self.counts.woken += 1
        found = self._store.reader.candidates(pull.topic, pull.queue_id, pull.queue_offset, 0, 0, None)
        self._reply(held.connection, pull, found)

    def _answer(self, connection: Connection, pull: Pull, wanted: Wanted | PullRefusal, may_wait: bool) -> None:
        if isinstance(wanted, PullRefusal):
            self._refuse(connection, pull, wanted)
            return
        if may_wait and pull.sys_flag & COMMIT_OFFSET and pull.commit_offset >= 0:
            self.commits.take(pull.group, pull.topic, pull.queue_id, pull.commit_offset)
        if not connection.is_writable:
            self._send_back(connection, pull)
            return
        if self._offsets.is_marked(pull.topic) and self._moves(connection, pull):
            return
        if may_wait and self._waits(pull):
            self._hold(connection, pull, wanted)
            return
        fetched = self._fetch(pull, wanted, may_wait=False)
        if fetched.is_cold:
            self._bring_in(connection, pull, wanted, fetched)
        elif may_wait and not fetched.places and self._may_hold(pull, fetched):
            self._hold(connection, pull, wanted)
        else:
            self._reply(connection, pull, self._sifted(pull, wanted, fetched))

    def _moves(self, connection: Connection, pull: Pull) -> bool:
        """Answer with the new offset if the group was reset in this queue (RocketMQ 5: OFFSET_RESET); else False."""
        reader = self._checks.reader(connection, pull.group)
        target = self._offsets.take_reset(reader, pull.topic, pull.queue_id, pull.queue_offset)
        if target is None:
            return False
        low, high = self._store.queue_range(pull.topic, pull.queue_id) or (0, 0)
        self._reply(connection, pull, Fetched(FetchStatus.OFFSET_RESET, target, low, high))
        return True

    def _fetch(self, pull: Pull, wanted: Wanted, may_wait: bool) -> Fetched:
        reader, settings = self._store.reader, self._settings
        if isinstance(wanted, Program):
            bounds = settings.sifted_max, settings.sifted_bytes_max
            return reader.candidates(pull.topic, pull.queue_id, pull.queue_offset, *bounds, None, may_wait)
        return reader.fetch(pull.topic, pull.queue_id, pull.queue_offset, *self._bounds(pull), wanted, may_wait)

    def _bounds(self, pull: Pull) -> tuple[int, int]:
        """How many messages and bytes the pull may get."""
        settings = self._settings
        return (
            max(1, min(pull.count_max, settings.count_max)),
            min(pull.bytes_max, settings.bytes_max) if pull.bytes_max > 0 else settings.bytes_default,
        )

    def _sifted(self, pull: Pull, wanted: Wanted, fetched: Fetched) -> Fetched:
        """Return what an SQL filter leaves of the fetched messages; with other filters, the same messages."""
        if isinstance(wanted, Program) and fetched.status is FetchStatus.FOUND:
            if self._sift_until is None:
                self._sift_until = self._clock.monotonic() + _SIFT_S
            at = pull.topic, pull.queue_id, pull.queue_offset
            sifted = self._store.reader.sift(fetched, at, wanted, *self._bounds(pull), self._is_sifting_over)
            self.counts.sifted += sifted
            self.counts.sifted_out += sifted - len(fetched.places)
        return fetched

    def _is_sifting_over(self) -> bool:
        return self._sift_until is not None and self._clock.monotonic() >= self._sift_until

    def _reply(self, connection: Connection, pull: Pull, fetched: Fetched) -> None:
        if fetched.status is FetchStatus.FOUND:
            self.counts.found_some(pull, len(fetched.places), fetched.bytes)
            self._offsets.pulled.note(pull.group, pull.topic, pull.queue_id, fetched.next_offset)
        else:
            self.counts.missed += 1
        if not pull.is_oneway:
            code: int = code_of(fetched.status, pull.queue_offset)
            slave_reads, suggested = self._slave_reads, 0
            if slave_reads is not None:
                code = slave_reads.code(pull.topic, pull.queue_id, pull.queue_offset, code, fetched)
                suggested = slave_reads.suggested(fetched.lag_bytes)
            connection.writelines([reply_head(pull, code, fetched, suggested), *fetched.buffers])

    def _waits(self, pull: Pull) -> bool:
        """Return whether the pull is at the queue's end and can be held: checked before anything is fetched."""
        return (
            bool(pull.sys_flag & SUSPEND)
            and pull.suspend_ms > 0
            and not pull.is_oneway
            and self._slave_reads is None
            and self._store.reader.is_all_read(pull.topic, pull.queue_id, pull.queue_offset)
        )

    def _may_hold(self, pull: Pull, fetched: Fetched) -> bool:
        if not pull.sys_flag & SUSPEND or pull.suspend_ms <= 0 or pull.is_oneway:
            return False
        code = code_of(fetched.status, pull.queue_offset)
        if self._slave_reads is not None:
            return self._slave_reads.may_hold(pull.topic, pull.queue_id, pull.queue_offset, code, fetched.status)
        return code == ResponseCode.PULL_NOT_FOUND

    def _hold(self, connection: Connection, pull: Pull, wanted: Wanted) -> None:
        wait_ms = min(pull.suspend_ms, self._settings.suspend_ms_max)
        full = self.held.hold(connection, pull, wanted, self._clock.monotonic() + wait_ms / 1000)
        if full is not None:
            self._refuse(connection, pull, PullRefusal(ResponseCode.SYSTEM_BUSY, full))

    def _bring_in(self, connection: Connection, pull: Pull, wanted: Wanted, fetched: Fetched) -> None:
        """Let the cold reader read the messages first, then look again: meanwhile their segment may have gone, and the
        peer may have stopped reading.
        """
        if not self.cold.may_read(connection):
            if not self.cold.wait(connection, pull):
                remark = f"{self.cold.waiting} pulls wait for the disk, which is as many as may; pull again later"
                self._refuse(connection, pull, PullRefusal(ResponseCode.SYSTEM_BUSY, remark))
            return
        self.counts.cold += 1
        has_entries = fetched.cold_entries is None
        self.cold.read(connection, fetched.cold, partial(self._is_in, connection, pull, wanted, has_entries))

    def _is_in(self, connection: Connection, pull: Pull, wanted: Wanted, may_wait: bool) -> None:
        """Look again; may_wait: the messages were read, and not only their queue entries."""
        if not self._may_answer(connection, pull):
            return
        if not connection.is_writable:
            self._send_back(connection, pull)
            return
        fetched = self._fetch(pull, wanted, may_wait)
        if fetched.is_cold and fetched.cold_entries is None:
            self.cold.read(connection, fetched.cold, partial(self._is_in, connection, pull, wanted, True))
            return
        if fetched.is_cold:
            fetched = self._fetch(pull, wanted, may_wait=True)  # memory is so short that they are gone again
        self._reply(connection, pull, self._sifted(pull, wanted, fetched))

    def _send_back(self, connection: Connection, pull: Pull) -> None:
        low, high = self._store.queue_range(pull.topic, pull.queue_id) or (0, 0)
        fetched = Fetched(FetchStatus.NO_MATCHED_MESSAGE, pull.queue_offset, low, high)
        self._reply(connection, pull, fetched)

    def _refuse(self, connection: Connection, pull: Pull, why: PullRefusal) -> None:
        self.counts.refused += 1
        if not pull.is_oneway:
            ext = {"forbiddenType": str(why.forbidden)} if why.forbidden else None
            connection.write(frames.encode(reply(pull, why.code, why.remark, ext)))
