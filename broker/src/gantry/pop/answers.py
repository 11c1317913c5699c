"""The answer of a pop: its header, and its messages as bytes.

Messages of the topic are sent as they stand in the log.  Those of a retry topic are encoded again: they get the name of
the normal topic and their handle in the property POP_CK, because a client cannot make it itself; queue id and queue
offset stay those in the retry topic.  Source: RocketMQ's `PopMessageProcessor`; facts 9.1 of the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator

from gantry.leaves import frames, leases, records
from gantry.leaves.frames import Command
from gantry.pop import handle
from gantry.pop.handle import ReceiptHandle
from gantry.pop.taking import Catch, TakenMessages
from gantry.wire import headers

Piece = memoryview | bytes


def found(request: Command, catch: Catch, invisible_ms: int, broker: str, topic: str) -> tuple[bytes, list[Piece]]:
    """Return the head of an answer with messages, and the messages."""
    pieces = [piece for one in catch.taken for piece in _messages(one, catch, invisible_ms, broker, topic)]
    popped = [(one.flag, one.queue_id, one.start, one.offsets) for one in catch.taken]
    opaque, pop_ms, revive_queue, counts = request.opaque, catch.pop_ms, catch.revive_queue, ";".join(catch.counts)
    size = sum([len(piece) for piece in pieces])
    return leases.found(opaque, pop_ms, invisible_ms, revive_queue, catch.rest, popped, counts, size), pieces


def header(catch: Catch, invisible_ms: int) -> dict[str, str]:
    """Return the fields that every answer has: clients read them without checking."""
    return headers.to_ext(
        popTime=catch.pop_ms, invisibleTime=invisible_ms, reviveQid=catch.revive_queue, restNum=catch.rest
    )


def _messages(taken: TakenMessages, catch: Catch, invisible_ms: int, broker: str, topic: str) -> Iterator[Piece]:
    if taken.flag == handle.NORMAL:
        yield from taken.fetched.buffers
        return
    stored = memoryview(b"".join(taken.fetched.buffers))
    at = 0
    for (_, size), offset in zip(taken.fetched.places, taken.offsets, strict=True):
        key = ReceiptHandle(
            taken.start, catch.pop_ms, invisible_ms, catch.revive_queue, taken.flag, broker, taken.queue_id, offset
        )
        yield _renamed(stored[at : at + size], topic, handle.encode(key).encode())
        at += size


def _renamed(stored: memoryview, topic: str, key: bytes) -> Piece:
    """Return a record of a retry topic as clients get it; unchanged when it has no room for its handle."""
    record = records.view(stored, 0, len(stored))
    text = record.properties
    if text and text[-1:] != b"\x02":
        text += b"\x02"
    text += b"%b\x01%b\x02" % (handle.POP_CK, key)
    if len(text) > records.PROPERTIES_BYTES_MAX:
        return stored
    send = frames.Send(
        topic=topic,
        queue_id=record.queue_id,
        sys_flag=record.sys_flag,
        born_ms=record.born_ms,
        flag=record.flag,
        properties=text,
        reconsume_times=record.reconsume_times,
        body=record.body,
        born_host=record.born_host,
        prepared_offset=record.prepared_offset,
    )
    send.queue_offset = record.queue_offset
    out = bytearray(records.size_of(send, len(record.store_host)))
    records.encode_run(out, 0, record.log_offset, [send], record.store_ms, record.store_host)
    return bytes(out)
