"""A run of sends on its way into the log, each step for the whole run.

    plain     how many of them need no closer look by `append.admit`
    sort      a run of plain and delayed ones, by which of both they are
    unpack    the messages in the body of a batch request
    seal      the last touches: the broker's own properties, the address that a message came from, and the bits of the
              sys flag that only the broker sets
    entries   what the log holds of them now, without reading it back

`plain` and `seal` have no rules of their own: their callers pass them in (`append.admit`, `append.batch`), and get
every unusual message back, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from gantry.leaves.properties import (
    PAIR_END,
    TRAIT_DELAY,
    TRAIT_ENDS_OPEN,
    TRAIT_NAMES_DELAY,
    TRAIT_POP_CK,
    TRAIT_SHARDING_KEY,
    TRAIT_TIMER_CANCEL,
    TRAIT_TRANSACTION,
    TRAIT_UNIQUE_KEY,
    UNWRITTEN,
    scan,
)
from gantry.leaves.records import (
    SYS_BORN_HOST_V6,
    SYS_STORE_HOST_V6,
    SYS_TRANSACTION_BITS,
    split_batch,
)
from gantry.leaves.requests import Send
from gantry.leaves.stored import Entry

KIND_NORMAL, KIND_FIFO, KIND_DELAY = 1, 2, 3
"""What RocketMQ calls the type of a message that is in no transaction."""

_UNSORTED = TRAIT_TRANSACTION | TRAIT_TIMER_CANCEL
_SEALED_TRAITS = TRAIT_UNIQUE_KEY | TRAIT_POP_CK


class Peer(Protocol):
    """The connection that a run came from."""

    born_host: bytes


def plain(
    sends: Sequence[Send],
    queues: Mapping[str, int],
    body_bytes_max: int,
    properties_bytes_max: int,
    unique_key_bytes_max: int,
    traits: int,
    sys_flags: int,
) -> int:
    """How many messages from the first on are plain.

    Plain is a message for one of the `queues[topic]` queues of a topic that is listed, not a batch, within all
    limits, without any of these traits and sys flags, and without UNWRITTEN in its properties.
    """
    for number, send in enumerate(sends):
        if (
            not 0 <= send.queue_id < queues.get(send.topic, 0)
            or send.batch
            or send.traits & traits
            or send.sys_flag & sys_flags
            or len(send.body) > body_bytes_max
            or len(send.properties) > properties_bytes_max
            or len(send.unique_key) > unique_key_bytes_max
            or (len(send.properties) >= len(UNWRITTEN) and UNWRITTEN in send.properties)
        ):
            return number
    return len(sends)


def sort(
    sends: Sequence[Send],
    queues: Mapping[str, int],
    typed: Mapping[str, tuple[int, int]],
    body_bytes_max: int,
    properties_bytes_max: int,
    unique_key_bytes_max: int,
) -> tuple[list[Send], list[Send]] | None:
    """The plain messages and those that ask for a delay, each in their order; None when one is neither.

    As for `plain`; the topics of `typed` have as many queues and take only messages of the kind that stands there.
    """
    found: tuple[list[Send], list[Send]] = [], []
    for send in sends:
        count, kind = queues.get(send.topic, 0), 0
        if not count:
            count, kind = typed.get(send.topic, (0, 0))
        if kind and kind != _kind(send.traits):
            return None
        limits = body_bytes_max, properties_bytes_max, unique_key_bytes_max, _UNSORTED, SYS_TRANSACTION_BITS
        if not plain((send,), {send.topic: count}, *limits):
            return None
        found[send.traits & TRAIT_DELAY != 0].append(send)
    return found


def _kind(traits: int) -> int:
    if traits & (TRAIT_DELAY | TRAIT_NAMES_DELAY):
        return KIND_DELAY
    return KIND_FIFO if traits & TRAIT_SHARDING_KEY else KIND_NORMAL


def unpack(request: Send, count_max: int) -> tuple[int, list[Send]]:
    """How many messages a batch request holds, and the messages; none of them when there are more than `count_max`.

    Topic, queue, system flags and birth are the request's, and so are its properties, before those of each message.
    MalformedBatchError when the body is no batch.
    """
    parts = split_batch(request.body)
    if len(parts) > count_max:
        return len(parts), []
    shared = request.properties
    if shared and not shared.endswith(PAIR_END):
        shared += PAIR_END
    sends = []
    for flag, body, own in parts:
        send = Send(
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
            properties=shared + own,
            reconsume_times=request.reconsume_times,
            body=body,
        )
        send.traits, send.unique_key, send.keys, send.tags_code = scan(send.properties)
        sends.append(send)
    return len(sends), sends


def seal(
    gathered: Iterable[tuple[Peer, Sequence[Send]]], suffix: bytes, mark: bytes, in_order: Callable[[Send], bytes]
) -> list[Send]:
    """Give each message the address of its peer, and `suffix` behind its properties; all runs as one.

    Clears the transaction bits of the sys flag: their meaning was handled before, and a record that
    keeps them is in no queue, or counts as a commit.
    `in_order(send)` closes and completes properties that hold `mark` or POP_CK, or have no unique key.
    """
    joint: list[Send] = []
    for peer, sends in gathered:
        for send in sends:
            text = send.properties
            if send.traits & _SEALED_TRAITS != TRAIT_UNIQUE_KEY or mark in text:
                text = in_order(send)
            elif send.traits & TRAIT_ENDS_OPEN:
                text += PAIR_END
                send.traits &= ~TRAIT_ENDS_OPEN
            send.properties = text + suffix
            send.born_host = peer.born_host
            send.sys_flag &= ~SYS_TRANSACTION_BITS
        joint += sends
    return joint


def entries(sends: Sequence[Send], store_ms: int, store_host_bytes: int) -> list[Entry]:
    """The entries of messages that were just encoded: what `records.walk` would find where they stand.

    Only for messages whose scanned fields are those of their final properties.
    """
    store_bit = SYS_STORE_HOST_V6 if store_host_bytes == 20 else 0
    keep = ~(SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6)
    return [
        Entry(
            send.log_offset,
            send.size,
            send.topic,
            send.queue_id,
            send.queue_offset,
            send.tags_code,
            store_ms,
            send.sys_flag & keep | (SYS_BORN_HOST_V6 if len(send.born_host) == 20 else 0) | store_bit,
            send.prepared_offset,
            send.unique_key,
            send.keys,
            send.properties,
            send.born_ms,
        )
        for send in sends
    ]
