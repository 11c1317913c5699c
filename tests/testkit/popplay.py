"""Pops over the wire: requests and how their answers read, for tests with a broker behind a socket.

    popped = pop(reply)          the messages of an answer, each with its handle
    popped[0].handle             as a client of RocketMQ makes it, from the infos of the answer or POP_CK
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import NamedTuple

from gantry.leaves import properties, records
from gantry.leaves.frames import Command
from gantry.wire.bodies import dumps
from gantry.wire.codes import RequestCode
from gantry.wire.command import request

TOPIC, GROUP, BROKER = "orders", "workers", "broker-a"


class Popped(NamedTuple):
    """One message of an answer, with the topic that its queue belongs to."""

    handle: str
    topic: str
    queue_id: int
    offset: int
    body: bytes
    times: int
    properties: dict[str, str]


def pop_request(count: int = 32, invisible_ms: int = 60_000, **fields: object) -> Command:
    """POP_MESSAGE of any queue, without waiting."""
    ext: dict[str, object] = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": -1,
        "maxMsgNums": count,
        "invisibleTime": invisible_ms,
        "pollTime": 0,
        "bornTime": 0,
        "initMode": 0,
    }
    return request(RequestCode.POP_MESSAGE, {name: str(value) for name, value in (ext | fields).items()})


def popped(reply: Command, group: str = GROUP, broker: str = BROKER) -> list[Popped]:
    """Return the messages of an answer, with handles made by the rules of RocketMQ's clients (facts 9.2)."""
    starts, offsets = _starts(reply.ext["startOffsetInfo"]), _offsets(reply.ext["msgOffsetInfo"])
    given = "{popTime} {invisibleTime} {reviveQid}".format(**reply.ext)
    found, at = [], 0
    while at < len(reply.body):
        record = records.view(reply.body, at, len(reply.body))
        pairs = properties.parse(record.properties)
        handle = pairs.get("POP_CK")
        if handle is None:
            assert record.queue_offset in offsets[0, record.queue_id]
            start = starts[0, record.queue_id]
            handle = f"{start} {given} 0 {broker} {record.queue_id} {record.queue_offset}"
        flag = handle.split(" ")[4]
        topic = record.topic if flag == "0" else f"%RETRY%{group}{'_' if flag == '1' else '+'}{record.topic}"
        found.append(
            Popped(
                handle, topic, record.queue_id, record.queue_offset, record.body, record.reconsume_times, pairs
            )
        )
        at += record.size
    assert len(found) == sum(map(len, offsets.values()))
    return found


def _starts(text: str) -> dict[tuple[int, int], int]:
    words = [list(map(int, one.split(" "))) for one in text.split(";")]
    starts = {(flag, queue_id): start for flag, queue_id, start in words}
    assert len(starts) == len(words), "clients refuse a queue that is named twice"
    return starts


def _offsets(text: str) -> dict[tuple[int, int], list[int]]:
    words = [one.split(" ") for one in text.split(";")]
    return {(int(flag), int(queue_id)): list(map(int, offsets.split(","))) for flag, queue_id, offsets in words}


def ack_request(one: Popped, code: int = RequestCode.ACK_MESSAGE, group: str = GROUP, **fields: object) -> Command:
    """ACK_MESSAGE, or another request with a handle."""
    ext = {
        "consumerGroup": group,
        "topic": one.topic,
        "queueId": one.queue_id,
        "extraInfo": one.handle,
        "offset": one.offset,
    }
    return request(code, {name: str(value) for name, value in (ext | fields).items()})


def change_request(one: Popped, invisible_ms: int, **fields: object) -> Command:
    """CHANGE_MESSAGE_INVISIBLETIME."""
    return ack_request(one, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, invisibleTime=invisible_ms, **fields)


def changed(one: Popped, reply: Command) -> Popped:
    """Return the message with the handle that the answer to a change gives it."""
    words = one.handle.split(" ")
    words[0] = words[7]
    words[1:4] = [reply.ext["popTime"], reply.ext["invisibleTime"], reply.ext["reviveQid"]]
    return one._replace(handle=" ".join(words))


def lease_of(one: Popped) -> tuple[str, ...]:
    """What names the lease of a message: all of its handle but the broker and the message."""
    words = one.handle.split(" ")
    return *words[:5], words[6]


def batch_ack_request(messages: Sequence[Popped], group: str = GROUP, topic: str = TOPIC) -> Command:
    """BATCH_ACK_MESSAGE, one entry for each lease, as RocketMQ's proxy writes it."""
    leases: dict[tuple[str, ...], list[int]] = {}
    for one in messages:
        leases.setdefault(lease_of(one), []).append(one.offset)
    acks = []
    for (start, pop_ms, invisible_ms, revive, flag, queue_id), offsets in leases.items():
        bits = sum(1 << (offset - int(start)) for offset in offsets)
        packed = base64.b64encode(bits.to_bytes(bits.bit_length() // 8 + 1, "little")).decode()
        acks.append(
            {
                "c": group,
                "t": topic,
                "r": flag,
                "so": int(start),
                "q": int(queue_id),
                "rq": int(revive),
                "pt": int(pop_ms),
                "it": int(invisible_ms),
                "b": packed,
            }
        )
    return request(RequestCode.BATCH_ACK_MESSAGE, {}, dumps({"brokerName": BROKER, "acks": acks}))
