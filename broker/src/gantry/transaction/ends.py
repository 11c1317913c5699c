"""END_TRANSACTION (37): commit, roll back, or "unknown".

An end names its half by queue offset and log offset.  Both are verified.  Usually the book has an open half at that
queue offset, and its log offset and group have to be the ones that are named.  Else the half queue's entry at that
offset has to point to that log offset.  So only a half record can be named, not the middle of one nor one faked inside
a body.  Where a half was copied and its first place was removed with its segment, its unique key has to be right
instead.  Then the group has to be that of the half.  RocketMQ:
`EndTransactionProcessor`; its stock clients send 37 one-way, so refusals are counted as well as answered.

What an end needs is looked up here, for a run at once where all of its ends name open halves (`leaves.openhalves`), and
settled at the end of the loop's turn (`settle`).  The record of a half that is no longer in memory is brought in by the
cold reader before that.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gantry.errors import Refusal
from gantry.leaves import frames, openhalves
from gantry.leaves.frames import Command, End
from gantry.model import names
from gantry.store.keysearch import drive, looked_up
from gantry.transaction.checker import OpenHalf
from gantry.transaction.endruns import EndRun, SettleRequest, pieces
from gantry.transaction.half import SYS_COMMIT, SYS_ROLLBACK, HalfFacts
from gantry.transaction.lookups import OutcomeSearch
from gantry.transaction.oplog import TransactionState
from gantry.transaction.settle import Settling
from gantry.wire.codes import ResponseCode
from gantry.wire.command import refusal, reply

if TYPE_CHECKING:
    from gantry.store.store import Store
    from gantry.transport.connection import Connection

_Entry = tuple[int, int, int]
_OUTCOMES = {SYS_COMMIT: TransactionState.COMMITTED, SYS_ROLLBACK: TransactionState.ROLLED_BACK}


class Ends:
    """Handles the END_TRANSACTION requests of producers."""

    def __init__(self, settling: Settling, store: Store) -> None:
        self._settling = settling
        self._counts = settling.counts
        self._store = store
        self._search = OutcomeSearch(store, settling)

    def end_run(self, connection: Connection, ends: list[End]) -> None:
        """Handle the ends of one read of a connection; refusals are answered now, others when they are settled."""
        warm_from = self._store.dispatched.offset - self._store.settings.warm_bytes
        usual = openhalves.match(ends, self._settling.book.open, warm_from)
        if usual is not None:
            halves, checks, size = usual
            self._counts.answered += checks
            run = EndRun(connection, ends, halves, size)
            self._settling.submit(*pieces(run, self._store.settings.segment_bytes))
            return
        for end in ends:
            self._end_one(connection, end, warm_from)

    def _end_one(self, connection: Connection, end: End, warm_from: int) -> None:
        self._counts.answered += end.from_check
        outcome = _OUTCOMES.get(end.kind)
        half = self._settling.book.open.get(end.queue_offset)
        if (
            half is not None
            and outcome is not None
            and half.log_offset == end.log_offset >= warm_from
            and half.group == end.group
        ):
            self._settling.submit(SettleRequest(connection, end, half, outcome))
            return
        if outcome is None:
            # RocketMQ does not answer at all here; a client that waits for an answer should get one.
            self._counts.unknown += 1
            self._reply(connection, end, reply(end))
            return

        def found(places: tuple[_Entry | None, _Entry | None]) -> None:
            self._reply(connection, end, self._look_closer(connection, end, outcome, *places))

        drive(looked_up(self._store, partial(self._places, end)), found)

    def _reply(self, connection: Connection, end: End, answer: Command | None) -> None:
        if answer is not None and not end.is_oneway:
            connection.write(frames.encode(answer))

    def _places(self, end: End) -> tuple[_Entry | None, _Entry | None]:
        """Return the half-queue entries of a half and, when its segment is gone, of the copy that was carried on."""
        entry = self._store.reader.entry(names.HALF_TOPIC, 0, end.queue_offset)
        if entry is not None or end.log_offset >= self._store.reader.log_start:
            return entry, None
        return None, self._carried_on(end.queue_offset)

    def _look_closer(
        self, connection: Connection, end: End, outcome: TransactionState, entry: _Entry | None, carried: _Entry | None
    ) -> Command | None:
        queue_offset, log_offset = end.queue_offset, end.log_offset
        keys: tuple[str, ...] = ()
        if carried is not None:
            entry, log_offset = carried, carried[0]
            keys = end.transaction_id, end.message_id
        if entry is None:
            self._search.look_up(queue_offset, lambda known: self._answer_gone(connection, end, outcome, known))
            return None
        if entry[0] != log_offset:
            remark = f"half message {queue_offset} does not stand at log offset {log_offset}"
            return self._refused(end, "wrong offset", remark)
        if self._store.dispatched.offset - log_offset <= self._store.settings.warm_bytes:
            return self._end_at(connection, end, entry, keys, outcome)

        def came() -> None:
            self._reply(connection, end, self._end_at(connection, end, entry, keys, outcome))

        self._store.bring_in([(log_offset, entry[1])], came)
        return None

    def _answer_gone(
        self,
        connection: Connection,
        end: End,
        outcome: TransactionState,
        known: TransactionState | Refusal | None,
    ) -> None:
        """Answer an end whose half is not in its queue any more, or never was."""
        if known is outcome:
            self._counts.repeated += 1
            answer = reply(end)
        elif isinstance(known, Refusal):
            self._counts.refuse("long search")
            answer = refusal(end, known)
        else:
            answer = self._refused(end, "no such half", f"the half queue has no message {end.queue_offset}")
        self._reply(connection, end, answer)

    def _carried_on(self, root: int) -> _Entry | None:
        """Return the half-queue entry of a transaction's copy, when its first half was removed with its segment."""
        half = self._settling.book.find(root)
        return None if half is None else self._store.reader.entry(names.HALF_TOPIC, 0, half.current)

    def _end_at(
        self,
        connection: Connection,
        end: End,
        entry: _Entry,
        keys: tuple[str, ...],
        outcome: TransactionState,
    ) -> Command | None:
        """keys: one of them has to be the half's, where its log offset proves nothing."""
        record = self._store.reader.record(entry)
        if record is None or record.topic != names.HALF_TOPIC:
            return self._refused(end, "unreadable half", f"the half at log offset {entry[0]} cannot be read")
        facts = HalfFacts(record.properties, record.queue_offset)
        if facts.group != end.group:
            return self._refused(end, "wrong group", "the producer group wrong")
        if keys and facts.unique_key not in keys:
            remark = "the half was carried on to another place, and its transactionId is not the one that was given"
            return self._refused(end, "wrong key", remark)
        self._search.submit(SettleRequest(connection, end, OpenHalf.of(record, facts), outcome))
        return None

    def _refused(self, end: End, reason: str, remark: str) -> Command:
        self._counts.refuse(reason)
        return reply(end, ResponseCode.SYSTEM_ERROR, remark)
