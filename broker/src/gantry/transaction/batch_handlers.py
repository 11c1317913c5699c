"""Requests of sinks: DECIDE_BATCH (24004), END_BATCH (24005), LIST_SINKS (24006).  Ours; `broker/docs/transactions.md`.

DECIDE_BATCH goes to the master of the sink's home group, and to no other.  It changes the table without a suspension,
so of two that come together one is first.  The answer is sent when every copy that an acknowledgement counts has the
change.  When that takes too long, the answer says that the outcome is open; asked again, the request has the same
outcome.  While the group could not confirm a message it decides nothing either.

END_BATCH goes to every group that may have halves of the batch, and carries the decision.  A group that is not the home
stores it, and so also ends halves that come late, or that the sink did not ask to end before it stopped.  A process
that has just started does not know whether every copy has the decisions in its table, so it waits for that first.  A
sink that is told that nothing is left goes on to "done", and halves of a batch that is done are rolled back.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.append.admit import WriteGate
from gantry.clock import Clock
from gantry.errors import Refusal
from gantry.leaves.frames import Command
from gantry.metadata.state import State
from gantry.model import documents
from gantry.transaction.batchends import BatchEnds
from gantry.transaction.checker import Book
from gantry.transaction.decisions import Decisions
from gantry.transaction.oplog import TransactionState
from gantry.transaction.settle import Settling
from gantry.transaction.sinks import Batch, Sink
from gantry.wire import bodies, headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import refusal, reply

if TYPE_CHECKING:
    from gantry.store.store import Store
    from gantry.transport.connection import Connection

COMMIT, ABORT, DONE, ASK, FORGET = "commit", "abort", "done", "ask", "forget"
_LISTED_MAX = 1000
_LISTED_OF_ONE_MAX = 16_384  # parts of a named sink: several tries of the largest batch; some 3 MB
_GROUPS_MAX = 1000  # far more than any cluster has
_VERDICTS = {
    TransactionState.COMMITTED: "committed", TransactionState.ROLLED_BACK: "aborted", TransactionState.OPEN: "undecided"
}
_LATE = "not confirmed in time; ask again, nothing ends twice"
_NOT_KEPT = "not kept by every in-sync member yet, the outcome is open; ask again"

audit = logging.getLogger("gantry.audit")


@dataclass(frozen=True, slots=True)
class Copies:
    """The group's copies: `caught_up` waits until all have the changes made so far, `noted` returns a check for it."""

    group: str
    caught_up: Callable[[], Awaitable[bool]]
    noted: Callable[[], Callable[[], bool]]


class BatchHandlers:
    """Handlers of the requests of sinks."""

    def __init__(
        self, decisions: Decisions, ends: BatchEnds, book: Book, gate: WriteGate, clock: Clock, copies: Copies
    ) -> None:
        self.decisions = decisions
        self._ends = ends
        self._book = book
        self._gate = gate
        self._clock = clock
        self._copies = copies
        self._awaited: tuple[int, Callable[[], bool]] | None = None

    def decide(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """DECIDE_BATCH: commit, abort, done, ask, or forget by an administrator."""
        header = headers.parse(command.code, command.ext)
        batch, action = _batch(header)._replace(owner=header.text("owner")), header.text("action")
        sink = batch.sink
        if batch.home != self._copies.group and action != FORGET:
            remark = f"this is group {self._copies.group}, the home of sink {sink[:80]} is {batch.home[:80]}; ask there"
            return reply(command, ResponseCode.INVALID_PARAMETER, remark)
        if header.text("operator"):
            who = header.text("operator")[:80], connection.peer
            audit.warning("%s batch %d of sink %r, asked by %r from %s", action, batch.number, sink, *who)
        is_by_hand = bool(header.text("operator"))
        named = _names(command, "parts"), _names(command, "groups") or []
        refused = self._gate.refusal or self._act(batch, action, *named, is_by_hand)
        if refused is not None and refused.code != ResponseCode.TRANSACTION_SHOULD_COMMIT:
            return refusal(command, refused)
        self.decisions.file.save_if_changed()
        return self._when_kept(command, sink, refused)

    async def end(self, connection: Connection, command: Command) -> Command:
        """END_BATCH: end what this group has of a decided batch, some of it; the answer says what is left."""
        header = headers.parse(command.code, command.ext)
        batch = _batch(header)
        if not await self._ends.are_gathered():
            return reply(command, ResponseCode.SYSTEM_ERROR, _LATE)
        refused = self._heard(batch, header, command)
        if refused is not None:
            return refusal(command, refused)
        if not self.decisions.is_confirmed and not await self._are_kept():
            return reply(command, ResponseCode.SYSTEM_ERROR, _NOT_KEPT)
        ended = await self._ends.end(batch.sink)
        if ended.late:
            return reply(command, ResponseCode.SYSTEM_ERROR, _LATE)
        if ended.left and not ended.settled and self._gate.refusal is not None:
            return refusal(command, self._gate.refusal)
        if not ended.left and batch.home != self._copies.group:
            # Confirmed by now, like all that came before the decision: the names are not needed here any more.
            self.decisions.done(batch)
        return reply(command, body=bodies.dumps({"settled": ended.settled, "left": ended.left}))

    def page(self, connection: Connection, command: Command) -> Command:
        """LIST_SINKS: what is known of all sinks or of one, and what of them is open here."""
        wanted = headers.parse(command.code, command.ext).text("sinkId")
        now_ms = self._clock.now_ms()
        sinks = [wanted] if wanted else sorted({*self.decisions.keys(), *self._book.parts.sinks()})
        found = [(name, sink) for name in sinks if (sink := self.decisions.find(name)) is not None]
        known = [{"sinkId": name, **_summary(sink)} for name, sink in found]
        parts: list[dict[str, object]] = []
        for key, halves, since_ms in self._book.parts.counts():
            if wanted in ("", key.sink):
                verdict = _VERDICTS[self.decisions.verdict(key)]
                place: dict[str, object] = {"sinkId": key.sink, "batch": key.batch, "part": key.part, "home": key.home}
                parts.append({**place, "halves": halves, "ageMs": max(0, now_ms - since_ms), "verdict": verdict})
        parts_max = _LISTED_OF_ONE_MAX if wanted else _LISTED_MAX
        body = {"sinks": known[:_LISTED_MAX], "parts": parts[:parts_max], "sinkCount": len(known)}
        return reply(command, body=bodies.dumps({**body, "partCount": len(parts), "group": self._copies.group}))

    def tick(self) -> None:
        """Once a second: forget expired sinks, and check whether every copy has the decisions found at the start."""
        self.decisions.expire(self._clock.now_ms())
        self.decisions.file.save_if_changed()
        if self._awaited is None and not self.decisions.is_confirmed:
            self._awaited = self.decisions.number, self._copies.noted()
        if self._awaited is not None and self._awaited[1]():
            self.decisions.confirm(self._awaited[0])
            self._awaited = None

    def undecided(self) -> tuple[int, int]:
        """Return how many halves of undecided batches are open, and since when the oldest is (epoch ms; 0: none)."""
        count, since_ms = 0, 0
        for key, halves, oldest_ms in self._book.parts.counts():
            if self.decisions.verdict(key) is TransactionState.OPEN:
                count += halves
                since_ms = min(since_ms or oldest_ms, oldest_ms)
        return count, since_ms

    def _act(
        self, batch: Batch, action: str, parts: list[str] | None, groups: list[str], is_by_hand: bool
    ) -> Refusal | None:
        now_ms = self._clock.now_ms()
        if action in (COMMIT, ABORT):
            if parts is None:
                return Refusal(ResponseCode.INVALID_PARAMETER, f"a {action} names its parts")
            if action == ABORT:
                return self.decisions.abort(batch, parts, now_ms)
            return self.decisions.commit(batch, parts, now_ms, groups[:_GROUPS_MAX])
        if action == DONE:
            lacks = self._ends.lacks(batch)
            if lacks:
                remark = f"{lacks} halves of batch {batch.number} of sink {batch.sink} are open; end them first"
                return Refusal(ResponseCode.SYSTEM_ERROR, remark)
            self.decisions.done(batch)
        elif action == FORGET:
            if not is_by_hand or batch.sink in self._book.parts.sinks():
                remark = f"sink {batch.sink} has open halves, resolve them first; only an administrator forgets"
                return Refusal(ResponseCode.INVALID_PARAMETER, remark)
            self.decisions.forget(batch.sink)
        elif action != ASK:
            remark = f"action {action[:20]!r}: expected commit, abort, done, ask or forget"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        return None

    async def _when_kept(self, command: Command, sink: str, refused: Refusal | None) -> Command:
        """Answer when every copy has the newest decision; also a refusal, because the client acts upon its reason."""
        shown = self._shown(sink)
        if not await self._are_kept():
            return reply(command, ResponseCode.SYSTEM_ERROR, _NOT_KEPT)
        code, remark = (ResponseCode.SUCCESS, None) if refused is None else (refused.code, refused.remark)
        return reply(command, code, remark, body=shown)

    async def _are_kept(self) -> bool:
        """Wait until every copy has all decisions made so far; False when that takes too long."""
        number = self.decisions.number
        if not await self._copies.caught_up():
            return False
        self.decisions.confirm(number)
        return True

    def _heard(self, batch: Batch, header: headers.Header, command: Command) -> Refusal | None:
        """Store the decision or reservation of a request where this is not the home; at home it has to be known."""
        is_done, known = header.boolean("done"), self.decisions.find(batch.sink)
        parts, aborted = _names(command, "parts"), _names(command, "aborted")
        if batch.home == self._copies.group:
            if parts is not None and (known is None or known.batch < batch.number):
                remark = f"batch {batch.number} of sink {batch.sink} is not decided; decide it first"
                return Refusal(ResponseCode.TRANSACTION_STATE_UNKNOW, remark)
            return None
        if batch.is_passing and known is None and batch.sink not in self._book.parts.sinks():
            # The name is never used again, and no half of it is here.  Late halves are asked for at the home
            # (`sinkhomes`).
            return None
        now_ms, refused = self._clock.now_ms(), None
        if header.boolean("reserve"):
            refused = self.decisions.reserve(batch, now_ms)
        elif parts is not None or is_done:
            refused = self.decisions.learn(batch, None if is_done else parts, now_ms)
        elif aborted is not None:
            refused = self.decisions.abort(batch, aborted, now_ms, is_learned=True)
        self.decisions.file.save_if_changed()
        return refused

    def _shown(self, name: str) -> bytes:
        sink = self.decisions.find(name)
        if sink is None:
            return bodies.dumps({"batch": -1, "done": True, "parts": [], "groups": []})
        named = {"parts": sorted(sink.parts or ()), "groups": sorted(sink.groups)}
        return bodies.dumps({"batch": sink.batch, "done": sink.is_done, **named})


def batches_of(
    settling: Settling, store: Store, state: State, gate: WriteGate, clock: Clock, copies: Copies
) -> BatchHandlers:
    """Everything about batches around one opened store."""
    decisions = Decisions(state, copies.group)
    return BatchHandlers(decisions, BatchEnds(settling, decisions, store), settling.book, gate, clock, copies)


def _batch(header: headers.Header) -> Batch:
    return Batch(header.text("sinkId"), header.integer("batchId"), header.text("home"), header.boolean("passing"))


def _summary(sink: Sink) -> dict[str, object]:
    return {
        "home": sink.home,
        "batch": sink.batch,
        "done": sink.is_done,
        "parts": len(sink.parts or ()),
        "aborted": len(sink.aborted),
        "decidedMs": sink.decided_ms,
        "passing": sink.is_passing,
        "owner": sink.owner,
    }


def _names(command: Command, field: str) -> list[str] | None:
    """Return the parts in this field of a body; None without the field.  MalformedBodyError: they are not names."""
    if not command.body:
        return None
    try:
        source = documents.document(bodies.asked(command.body), "the body")
        if field not in source:
            return None
        names = documents.array(source, field)
    except ValueError as error:
        raise bodies.MalformedBodyError(str(error)) from error
    if not all(isinstance(name, str) for name in names):
        raise bodies.MalformedBodyError(f"{field} has something that is no name")
    return [str(name) for name in names]
