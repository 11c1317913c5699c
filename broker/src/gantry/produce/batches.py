"""The messages inside a batch request.

A batch is one request with one header and a body of many messages, each with its own flag, body and properties;
topic, queue, system flags and birth are the header's.  RocketMQ stores each as an ordinary record and answers
once.

Properties of the header belong to every message; where a message has a property of the same name, its own
counts.  A batch with one message that may not go in is refused whole, because its sender gets only one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gantry.append.admit import batch_refusal, content_refusal
from gantry.errors import Refusal
from gantry.leaves import records, runs
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.append.admit import MessageLimits
    from gantry.append.topiclimits import TopicLimits
    from gantry.leaves.frames import Send


def messages_of(
    request: Send,
    limits: MessageLimits,
    count_max: int,
    topic: TopicLimits | None,
    are_plain: Callable[[Sequence[Send]], bool],
) -> tuple[list[Send], bool] | Refusal:
    """Return the messages of a batch request that was itself admitted and whether all are plain, or why it is refused.

    Plain messages are within all limits, so that none of them has to be looked at by itself.
    """
    try:
        count, sends = runs.unpack(request, count_max)
    except records.MalformedBatchError as error:
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the batch cannot be read: {error}")
    if count > count_max:
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the batch has {count} messages, {count_max} are allowed")
    if are_plain(sends):
        return sends, True
    for number, send in enumerate(sends):
        refusal = batch_refusal(send) or content_refusal(send) or limits.refusal(send)
        if refusal is None and topic is not None:
            refusal = topic.refusal(send)
        if refusal is not None:
            return Refusal(refusal.code, f"message {number} of the batch: {refusal.remark}")
    return sends, False
