"""Requests with handles of orderly pops: done, another time, given up.

The answers are RocketMQ's (`AckMessageProcessor`, `ChangeInvisibleTimeProcessor`): a handle of a former batch, or of a
message below the committed offset, is answered SUCCESS and changes nothing; an offset that is no message of the batch
is MESSAGE_ILLEGAL (13) for an acknowledgement.  A change that had no effect has zeros in its header.  The field
`gantryVerdict` says what the handle meant, as for other pops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gantry.errors import Refusal
from gantry.pop import book
from gantry.pop.book import Queue
from gantry.pop.handle import ORDERLY_QUEUE
from gantry.pop.order import OrderVerdict
from gantry.pop.orderly import OrderlyPops
from gantry.wire import headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import refusal, reply

if TYPE_CHECKING:
    from gantry.leaves.frames import Command

VERDICT = "gantryVerdict"
_MEANS = {
    OrderVerdict.TAKEN: book.Verdict.OPEN,
    OrderVerdict.DONE: book.Verdict.DONE,
    OrderVerdict.STALE: book.Verdict.STALE,
    OrderVerdict.FOREIGN: book.Verdict.STALE,
}


class OrderlyAcks:
    """Makes the answers; the caller sends one with code SUCCESS when everything written now is confirmed."""

    def __init__(self, pops: OrderlyPops) -> None:
        self._pops = pops

    def ack(self, command: Command, queue: Queue, offset: int, pop_ms: int) -> Command:
        """Answer an acknowledgement of one message."""
        verdicts = self._pops.acknowledge(queue, (offset,), pop_ms)
        if isinstance(verdicts, Refusal):
            return refusal(command, verdicts)
        if verdicts[0] is OrderVerdict.FOREIGN:
            group, topic, queue_id = queue
            remark = f"offset is illegal, key:{topic}@{group}@{queue_id}, offset:{offset}, not in the group's batch"
            return reply(command, ResponseCode.MESSAGE_ILLEGAL, remark)
        return reply(command, ext={VERDICT: _MEANS[verdicts[0]].value})

    def close(self, queue: Queue, offsets: Sequence[int], pop_ms: int) -> list[book.Verdict] | Refusal:
        """Acknowledge messages of one batch; return what each handle meant."""
        verdicts = self._pops.acknowledge(queue, offsets, pop_ms)
        return verdicts if isinstance(verdicts, Refusal) else [_MEANS[verdict] for verdict in verdicts]

    def change(self, command: Command, queue: Queue, offset: int, pop_ms: int, invisible_ms: int) -> Command:
        """Answer a change of the invisible time of one message."""
        result = self._pops.change(queue, offset, pop_ms, invisible_ms)
        if isinstance(result, Refusal):
            return refusal(command, result)
        verdict, visible_ms = result
        ext = headers.to_ext(popTime=0, invisibleTime=0, reviveQid=0)
        if verdict is OrderVerdict.TAKEN:
            ext = headers.to_ext(popTime=pop_ms, invisibleTime=visible_ms - pop_ms, reviveQid=ORDERLY_QUEUE)
        return reply(command, ext={**ext, VERDICT: _MEANS[verdict].value})

    def forward(self, command: Command, queue: Queue, offset: int, pop_ms: int) -> Command:
        """Answer a request to give one message up."""
        verdict = self._pops.give_up(queue, offset, pop_ms)
        if isinstance(verdict, Refusal):
            return refusal(command, verdict)
        if verdict is None:
            return reply(command, ResponseCode.NO_MESSAGE, "the message is not in the log any more")
        return reply(command, ext={VERDICT: _MEANS[verdict].value})
