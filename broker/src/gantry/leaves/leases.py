"""Records of popped messages' leases and acknowledgements, the bodies that acknowledge them, and the head of a pop's
answer, in RocketMQ's form.

What they mean stands in `pop.records` and `pop.handle`.  Here they are laid out, and those in the layout that this
broker and Java's clients write are read: JSON with its members in the order of their names, strings of plain ASCII
without escapes, numbers of at most 18 digits.  Anything else needs a closer look (None), by a parser of JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

from gantry.errors import CorruptRecordError
from gantry.leaves import delays, properties
from gantry.leaves.frames import encode_head
from gantry.leaves.records import RECORD_BYTES_MIN, view
from gantry.leaves.requests import FLAG_RESPONSE, Command, Send

TAGS = b"TAGS"
TAG_LEASE, TAG_ACK, TAG_BATCH_ACK = b"ck", b"ack", b"bAck"

Key = tuple[str, str, int, int, int]
"""What names a lease: group, topic of the queue, queue id, first offset, pop time in ms."""
Place = tuple[str, int, str, bytes, int]
"""Where a record goes: revive topic and queue; broker, its address, and the time in ms."""
Ack = tuple[str, str, int, int, int, int, int, int, int]
"""One lease of a BATCH_ACK_MESSAGE: group, topic, retry flag, queue id, first offset, pop time, invisible time, revive
queue, and the bits of its messages."""
Popped = tuple[int, int, int, Sequence[int]]
"""Messages of one queue in the answer of a pop: retry flag, queue id, first offset of the lease, and their offsets."""

_QUEUES_MAX = 1 << 31
_HEAD = Struct(">i24xq")  # the size and the log offset in a record's head (see `leaves.records`)
_NUMBER = rb"(-?(?:0|[1-9][0-9]{0,17}))"
_COUNT = rb"(0|[1-9][0-9]{0,17})"
_TEXT = rb'"([ !#-\[\]-~]+)"'
_LIST = rb"\[-?(?:0|[1-9][0-9]{0,17})(?:,-?(?:0|[1-9][0-9]{0,17}))*\]"
_LEASE = re.compile(
    rb'\{"bm":%b,"bn":%b,"c":%b,"d":%b,"it":%b,"n":%b,"pt":%b,"q":%b,"ro":%b,"so":%b,"t":%b(?:,"cid":%b)?(?:,"gen":%b)?'
    rb'(?:,"again":1)?(?:,"move":1)?\}'
    % (_NUMBER, _TEXT, _TEXT, _LIST, *(5 * [_NUMBER]), _NUMBER, _TEXT, _TEXT, _NUMBER)
)
_ACK = re.compile(
    rb'\{"ao":%b,"bn":%b,"c":%b,"pt":%b,"q":%b,"so":%b,"t":%b(?:,"aol":%b)?(?:,"moved":1)?\}'
    % (_NUMBER, _TEXT, _TEXT, _NUMBER, _NUMBER, _NUMBER, _TEXT, _LIST)
)
_IN_LEASE, _IN_ACK = (3, 10, 7, 9, 6), (3, 7, 5, 6, 4)  # groups of a match: c, t, q, so, pt
_OF_LEASE = rb'\{"b":"([A-Za-z0-9+/]{2,8}={0,2})","c":%b,"it":%b,"pt":%b,"q":%b,"r":"([012])","rq":%b,"so":%b,"t":%b\}'
_ONE = re.compile(_OF_LEASE % (_TEXT, *(5 * [_COUNT]), _TEXT))
_BEGIN, _END = b'{"acks":[', re.compile(rb'\],"brokerName":%b\}' % _TEXT)
_DIGITS = {digit: n for n, digit in enumerate(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}


def lease(topic: str, key: Key, end_ms: int, offsets: Sequence[int], more: str, place: Place) -> Send:
    """Return the delayed message, in this topic, of a lease of these ascending offsets; scanned (`Store.append`).

    more: the members behind RocketMQ's, as JSON in ASCII with a comma before each.
    """
    group, of, queue_id, start, pop_ms = key
    steps = ",".join([str(offset - start) for offset in offsets])
    body = (
        f'{{"bm":0,"bn":{quoted(place[2])},"c":{quoted(group)},"d":[{steps}],"it":{end_ms - pop_ms},"n":{len(offsets)}'
        f',"pt":{pop_ms},"q":{queue_id},"ro":0,"so":{start},"t":{quoted(of)}{more}}}'
    )
    return _message(topic, body, (TAG_LEASE, "ck"), start, end_ms, key, place)


def ack(topic: str, key: Key, offsets: Sequence[int], is_moved: bool, due_ms: int, place: Place) -> Send:
    """Return the delayed message of an acknowledgement of these ascending offsets of a lease; scanned."""
    group, of, queue_id, start, pop_ms = key
    more = f',"aol":[{",".join(map(str, offsets))}]' if len(offsets) > 1 else ""
    more += ',"moved":1' if is_moved else ""
    body = (
        f'{{"ao":{offsets[0]},"bn":{quoted(place[2])},"c":{quoted(group)},"pt":{pop_ms},"q":{queue_id},"so":{start}'
        f',"t":{quoted(of)}{more}}}'
    )
    tag = TAG_BATCH_ACK if len(offsets) > 1 else TAG_ACK
    return _message(topic, body, (tag, "ack"), offsets[0], due_ms, key, place)


def _message(topic: str, body: str, tag: tuple[bytes, str], offset: int, due_ms: int, key: Key, place: Place) -> Send:
    group, of, queue_id, _, pop_ms = key
    unique_key = f"{of}@{queue_id}@{offset}@{group}@{pop_ms}@{place[2]}@{tag[1]}".encode()
    # RocketMQ: without TIMER_DELIVER_MS its reviver never gets to the lease.
    text = b"TAGS\x01%b\x02UNIQ_KEY\x01%b\x02TIMER_DELIVER_MS\x01%d\x02TIMER_OUT_MS\x01%d\x02" % (
        (tag[0], unique_key, due_ms, due_ms)
    )
    text += b"%b\x01%b\x02%b\x01%d\x02" % (delays.REAL_TOPIC, place[0].encode(), delays.REAL_QUEUE, place[1])
    traits, unique_key, keys, tags_code = properties.scan(text)
    return Send(
        topic=topic,
        born_ms=place[4],
        born_host=place[3],
        properties=text,
        body=body.encode(),
        traits=traits,
        unique_key=unique_key,
        keys=keys,
        tags_code=tags_code,
    )


def found(
    opaque: int,
    pop_ms: int,
    invisible_ms: int,
    revive_queue: int,
    rest: int,
    popped: Sequence[Popped],
    counts: str,
    body_bytes: int,
) -> bytes:
    """Return the frame of a pop's answer up to its body, of which `body_bytes` bytes have to follow.

    rest: messages behind those popped; counts: the field `orderCountInfo`, left out when it is empty.
    """
    ext = {
        "invisibleTime": str(invisible_ms),
        "msgOffsetInfo": ";".join([f"{flag} {queue} {','.join(map(str, own))}" for flag, queue, _, own in popped]),
        "popTime": str(pop_ms),
        "restNum": str(rest),
        "reviveQid": str(revive_queue),
        "startOffsetInfo": ";".join([f"{flag} {queue} {start}" for flag, queue, start, _ in popped]),
    }
    if counts:
        ext["orderCountInfo"] = counts
    return encode_head(Command(0, opaque=opaque, flag=FLAG_RESPONSE, remark="FOUND", ext=ext), body_bytes)


@lru_cache(maxsize=4096)
def quoted(text: str) -> str:
    """Return a text as JSON in ASCII; names repeat from lease to lease."""
    return json.dumps(text)


def named(
    memory: bytes | bytearray | memoryview, base: int, end: int, places: Sequence[tuple[int, int, int]]
) -> list[tuple[Key, bool] | None]:
    """Return whose lease each record is, and whether it is the lease itself; else it is an acknowledgement.

    places: (log offset, size, anything) of records; memory[0] is log offset `base`, records end at or before `end`.
    None for a record that needs a closer look.
    """
    stop = min(end - base, len(memory))
    return [_named(memory, log_offset - base, size, stop, log_offset) for log_offset, size, _ in places]


def _named(
    memory: bytes | bytearray | memoryview, at: int, size: int, stop: int, log_offset: int
) -> tuple[Key, bool] | None:
    if size < RECORD_BYTES_MIN or not 0 <= at <= stop - size or _HEAD.unpack_from(memory, at) != (size, log_offset):
        return None
    try:
        record = view(memory, at, at + size)
    except CorruptRecordError:
        return None
    (tag,) = properties.pick(record.properties, (TAGS,))
    if not record.topic.isascii() or tag not in (TAG_LEASE, TAG_ACK, TAG_BATCH_ACK):
        return None
    is_lease = tag == TAG_LEASE
    found = (_LEASE if is_lease else _ACK).fullmatch(record.body)
    if found is None:
        return None
    group, topic, queue_id, start, pop_ms = found.group(*(_IN_LEASE if is_lease else _IN_ACK))
    if not 0 <= int(queue_id) < _QUEUES_MAX:
        return None
    return (group.decode(), topic.decode(), int(queue_id), int(start), int(pop_ms)), is_lease


def acks(body: bytes) -> list[Ack] | None:
    """Return the leases that the body of a BATCH_ACK_MESSAGE acknowledges; None for one that needs a closer look.

    At most 48 messages of each lease can be named here, counted from its first offset.
    """
    if not body.startswith(_BEGIN):
        return None
    found: list[Ack] = []
    at = len(_BEGIN)
    while (one := _ONE.match(body, at)) is not None:
        text, group, invisible_ms, pop_ms, queue_id, flag, revive_queue, start, topic = one.groups()
        if len(text) not in (4, 8):
            return None
        names = group.decode(), topic.decode()
        numbers = int(queue_id), int(start), int(pop_ms), int(invisible_ms), int(revive_queue)
        found.append((*names, int(flag), *numbers, _bits(text)))
        at = one.end()
        if body[at : at + 1] != b",":
            return found if _END.fullmatch(body, at) else None
        at += 1
    return None


def _bits(text: bytes) -> int:
    """Return the bits of a bit set of Java (bit i of byte i // 8, lowest first) in base64 of 4 or 8 digits."""
    bits = 0
    for at in range(0, len(text), 4):
        three = 0
        for digit in text[at : at + 4]:
            three = three << 6 | _DIGITS.get(digit, 0)
        bits |= int.from_bytes(three.to_bytes(3, "big"), "little") << (at // 4 * 24)
    padding = text.count(b"=")
    return bits & ((1 << (len(text) // 4 * 24 - 8 * padding)) - 1)
