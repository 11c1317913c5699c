"""Open halves and the ends of them, a run at a time.

    enter       dispatched halves become open
    match       the open halves that END_TRANSACTION requests name
    lay_out     the real messages and the op messages of ends, in the order in which they are appended
    tally       counts of ends by topic
    close       dispatched op messages end what is open

Each takes the usual: `enter` a half that was never put back and is no part of a batch, the others an end of a half that
is open and whose record lies in memory.  What is not, is left to the caller: `enter` and `close` stop there, and
`match` and `lay_out` return None and have done nothing.  So the rules of transactions stand in `gantry.transaction`,
and here are the same rules for the cases in which they have nothing to decide.

An op message that is usual names one half, its root:

    body        the root as a number
    properties  TAGS d, KEYS the root, GANTRY_TX the root and the letter of its outcome
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Mapping, Sequence
from struct import Struct
from sys import intern
from typing import TYPE_CHECKING, Any

from gantry.errors import CorruptRecordError
from gantry.leaves.halves import HalfFacts, message_at
from gantry.leaves.hashes import java_hash
from gantry.leaves.properties import TRAIT_DELAY, TRAIT_TIMER_CANCEL, pick
from gantry.leaves.records import SYS_TRANSACTION_BITS
from gantry.leaves.requests import End, Send
from gantry.leaves.stored import Entry

if TYPE_CHECKING:
    from gantry.leaves.stored import Record

COMMIT = 0x8
ROLLBACK = 0xC
STATE = b"GANTRY_TX"
LETTERS = b" crg"
"""The letter of an outcome, by its number: committed 1, rolled back 2, given up 3."""

_TAGS_CODE = java_hash(b"d")  # RocketMQ: TransactionalMessageUtil.REMOVE_TAG
_LOOKED_AT = (STATE,)
_DELAYS = TRAIT_DELAY | TRAIT_TIMER_CANCEL
_DIGITS_SURE = 19
_FINAL = (1, 2)
_HEAD = Struct(">i24xq")  # the size and the log offset in a record's head (see `leaves.records`)

Stretch = tuple[memoryview, int, int]
"""Memory of the log, the log offset of its first byte, and the log offset up to which it may be read."""
Stamp = tuple[str, int, bytes]
"""What op messages have in common: topic, birth time, host."""
Tally = dict[str, tuple[int, int, float, list[int]]]
"""By topic: commits, rollbacks, seconds from the half's store time to the commit in all, and commits by the bounds of
those seconds."""


class OpenHalf:
    """An open transaction: its present place, and the values that the rules use.

    `batch` is what the book makes of `batch_text`, the half's SPARK_TXN.
    """

    __slots__ = (
        "batch",
        "batch_text",
        "checks",
        "current",
        "group",
        "immunity_ms",
        "log_offset",
        "placed_ms",
        "queue_id",
        "root",
        "since_ms",
        "size",
        "topic",
    )

    def __init__(self, current: int, place: tuple[int, int], facts: HalfFacts, store_ms: int) -> None:
        self.root = facts.root
        self.current = current
        self.log_offset, self.size = place
        self.group, self.topic = intern(facts.group), intern(facts.topic)  # one text for all that are open
        self.queue_id = facts.queue_id
        self.checks = facts.checks
        self.immunity_ms = facts.immunity_ms
        self.since_ms = facts.since_ms or store_ms
        self.placed_ms = store_ms
        self.batch_text = facts.batch
        self.batch: Any = None

    @staticmethod
    def of(record: Record, facts: HalfFacts) -> OpenHalf:
        """Make an OpenHalf of a record; whether the transaction is still open is not checked."""
        place = record.log_offset, record.size
        return OpenHalf(record.queue_offset, place, facts, record.store_ms)


def enter(
    entries: Sequence[Entry], at: int, is_open: dict[int, OpenHalf], topics: dict[str, int], half_end: int
) -> tuple[list[OpenHalf], list[tuple[str, str]]]:
    """Enter the usual halves from entries[at] on, the first of which has to stand at `half_end`; return them, and their
    groups and topics, once for neighbours with the same.

    is_open: the open halves by their queue offset.  topics: how many are open, by topic.
    """
    entered: list[OpenHalf] = []
    pairs: list[tuple[str, str]] = []
    for entry in entries[at:]:
        offset = entry.queue_offset
        facts = HalfFacts(entry.properties, offset)
        if offset != half_end or facts.root != offset or facts.batch:
            break
        half = OpenHalf(offset, (entry.log_offset, entry.size), facts, entry.store_ms)
        is_open[offset] = half
        topics[half.topic] = topics.get(half.topic, 0) + 1
        half_end += 1
        entered.append(half)
        if not pairs or pairs[-1] != (half.group, half.topic):
            pairs.append((half.group, half.topic))
    return entered, pairs


def match(
    ends: Sequence[End], is_open: Mapping[int, OpenHalf], warm_from: int
) -> tuple[list[OpenHalf], int, int] | None:
    """Return the halves that these ends commit or roll back, how many ends answer a check, and the bytes of the halves.

    None unless each names an open half by queue offset, log offset and group, at or behind `warm_from` in the log.
    """
    found: list[OpenHalf] = []
    checks = total = 0
    for end in ends:
        half = is_open.get(end.queue_offset)
        if (
            half is None
            or end.kind not in (COMMIT, ROLLBACK)
            or half.log_offset != end.log_offset
            or half.log_offset < warm_from
            or half.group != end.group
        ):
            return None
        checks += end.from_check
        total += half.size
        found.append(half)
    return found, checks, total


def lay_out(
    ends: Sequence[End],
    halves: Sequence[OpenHalf],
    known: tuple[Mapping[int, OpenHalf], Container[int]],
    stretch: Stretch,
    queues_of: Callable[[str], int],
    stamp: Stamp,
) -> tuple[list[Send], list[Send]] | None:
    """Return the run that ends these halves, each real message right before its op message, and the op messages.

    known: the open halves by queue offset, and the roots of transactions of which a change is written and not
    dispatched.  queues_of: how many queues a topic has, 0 for one that does not exist.

    None unless all of them are usual: open, at their first place, without such a change and named once; and those that
    are committed lie in the stretch as records of just their place and size, ask for no delay, and go to a queue that
    their topic has.
    """
    memory, start, stop = stretch
    is_open, changing = known
    run: list[Send] = []
    ops: list[Send] = []
    queues: dict[str, int] = {}
    seen: set[int] = set()
    for end, half in zip(ends, halves, strict=True):
        root = half.root
        if root != half.current or is_open.get(root) is not half or root in changing or root in seen:
            return None
        seen.add(root)
        if end.kind == COMMIT:
            topic = half.topic
            if topic not in queues:
                queues[topic] = queues_of(topic)
            if not 0 <= half.queue_id < queues[topic] or not start <= half.log_offset <= stop - half.size:
                return None
            at = half.log_offset - start
            try:
                message = message_at(memory, at, at + half.size)
            except CorruptRecordError:
                return None
            if _HEAD.unpack_from(memory, at) != (half.size, half.log_offset) or message.traits & _DELAYS:
                return None
            make_real(message, topic, half.queue_id, half.log_offset)
            run.append(message)
        body = b"%d" % root
        ops.append(op_message(stamp, body, body, body + (b"c" if end.kind == COMMIT else b"r")))
        run.append(ops[-1])
    return run, ops


def make_real(send: Send, topic: str, queue_id: int, log_offset: int) -> None:
    """Make the message of a half record (`halves.message_at`) the one that a commit appends.

    RocketMQ: the stored properties keep what disguised them, TRAN_MSG among it, by which clients know that the
    message has a transaction id.
    """
    send.topic, send.queue_id = topic, queue_id
    send.sys_flag = send.sys_flag & ~SYS_TRANSACTION_BITS | COMMIT
    send.prepared_offset = log_offset


def op_message(stamp: Stamp, body: bytes, key: bytes, state: bytes) -> Send:
    """Return an op message with this body, under this key, with this GANTRY_TX."""
    keys = b"KEYS\x01%b\x02" % key if key else b""
    send = Send()  # for itself: naming them all in the call takes four times as long
    send.topic, send.born_ms, send.born_host = stamp
    send.properties = b"TAGS\x01d\x02%bGANTRY_TX\x01%b\x02" % (keys, state)
    send.body = body
    send.keys = key
    send.tags_code = _TAGS_CODE
    return send


def tally(ends: Sequence[End], halves: Sequence[OpenHalf], now_ms: int, bounds_s: tuple[float, ...]) -> Tally:
    """Count ends by the topics of their halves; commits also by the seconds since the half was stored."""
    found: Tally = {}
    for end, half in zip(ends, halves, strict=True):
        commits, rollbacks, total_s, latencies = found.get(half.topic) or (0, 0, 0.0, [0] * (len(bounds_s) + 1))
        if end.kind == COMMIT:
            seconds = max(0.0, (now_ms - half.since_ms) / 1000)
            latencies[bisect_left(bounds_s, seconds)] += 1
            found[half.topic] = commits + 1, rollbacks, total_s + seconds, latencies
        else:
            found[half.topic] = commits, rollbacks + 1, total_s, latencies
    return found


def close(
    entries: Sequence[Entry],
    at: int,
    is_open: dict[int, OpenHalf],
    topics: dict[str, int],
    outcomes: tuple[bytearray, int],
    op_end: int,
) -> list[int]:
    """End what the usual op messages from entries[at] on name, the first of which has to stand at `op_end`; return
    the roots.

    outcomes: two bits for each half-queue offset, and the offset of the first: the settle map's.
    """
    bits, base = outcomes
    roots: list[int] = []
    for entry in entries[at:]:
        (state,) = pick(entry.properties, _LOOKED_AT)
        if entry.queue_offset != op_end or state is None or len(state) > _DIGITS_SURE or not state[:-1].isdigit():
            break
        root, outcome = int(state[:-1]), LETTERS.find(state[-1:])
        half = is_open.get(root)
        place = root - base
        if outcome <= 0 or half is None or half.root != root or half.batch is not None:
            break
        if not 0 <= place < 4 * len(bits):
            break
        shift = (place & 3) << 1
        if bits[place >> 2] >> shift & 3 not in _FINAL:
            bits[place >> 2] = bits[place >> 2] & ~(3 << shift) | outcome << shift
        del is_open[root]
        left = topics[half.topic] - 1
        if left:
            topics[half.topic] = left
        else:
            del topics[half.topic]
        op_end += 1
        roots.append(root)
    return roots


def following(is_open: Container[int], at: int, end: int) -> int:
    """Return the first offset from `at` on where a half is open, or `end`."""
    while at < end and at not in is_open:
        at += 1
    return at


def done(last_named: Sequence[int], count: int, half_offset: int) -> int:
    """Return how many ops come before the first that names a half at or behind this offset; `count` do for sure.

    last_named: for each op the last offset that it names.
    """
    while count < len(last_named) and last_named[count] < half_offset:
        count += 1
    return count
