"""The messages inside a batch request.

A batch is one request with one header and a body of many messages, each with its own flag, body and properties;
topic, queue, system flags and birth are the header's.  RocketMQ stores each as an ordinary record and answers
once.

Properties of the header belong to every message; where a message has a property of the same name, its own
counts.  A batch with one message that may not go in is refused whole, because its sender gets only one answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.append.admit import MessageLimits, batch_refusal, content_refusal
from gantry.append.topiclimits import TopicLimits
from gantry.errors import Refusal
from gantry.leaves import frames, properties, records
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.leaves.frames import Send


def messages_of(
    request: Send, limits: MessageLimits, count_max: int, topic: TopicLimits | None = None
) -> list[Send] | Refusal:
    """Return the messages of a batch request that was itself admitted, or why the batch is refused."""
    try:
        entries = records.split_batch(request.body)
    except records.MalformedBatchError as error:
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the batch cannot be read: {error}")
    if len(entries) > count_max:
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL, f"the batch has {len(entries)} messages, {count_max} are allowed"
        )
    shared = request.properties
    if shared and not shared.endswith(properties.PAIR_END):
        shared += properties.PAIR_END
    sends = []
    for number, (flag, body, own) in enumerate(entries):
        send = _message(request, flag, body, shared + own)
        refusal = batch_refusal(send) or content_refusal(send) or limits.refusal(send)
        if refusal is None and topic is not None:
            refusal = topic.refusal(send)
        if refusal is not None:
            return Refusal(refusal.code, f"message {number} of the batch: {refusal.remark}")
        sends.append(send)
    return sends


def _message(request: Send, flag: int, body: bytes, text: bytes) -> Send:
    traits, unique_key, keys, tags_code = properties.scan(text)
    return frames.Send(
        code=request.code,
        language=request.language,
        version=request.version,
        opaque=request.opaque,
        rpc_flag=request.rpc_flag,
        group=request.group,
        topic=request.topic,
        queue_id=request.queue_id,
        sys_flag=request.sys_flag,
        born_ms=request.born_ms,
        flag=flag,
        properties=text,
        reconsume_times=request.reconsume_times,
        body=body,
        traits=traits,
        unique_key=unique_key,
        keys=keys,
        tags_code=tags_code,
    )
