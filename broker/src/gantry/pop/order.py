"""The rules of orderly POP: which messages of a queue a group is handling, in order.

A queue has at most one outstanding batch for each group.  While a message of it is neither acknowledged nor visible
again, nothing else of the queue is delivered: the queue is locked.  Only the same attempt (a client that repeats its
request under the same attempt id) gets the batch again before that.  When all of it is visible again, the messages that
nobody acknowledged are delivered again, with the messages behind them, as a new batch with a later pop time.  Handles
of the former batch are stale from then on.

    committed offset   the first message of the batch that is not acknowledged, or the one behind the last
    count              how often a message was delivered before this time: one more for each repeated batch
    head               the message at the committed offset; only it can use up its attempts, because a client that
                       works in order has never begun with those behind it

An acknowledged message is never delivered again, also when one before it was not acknowledged: it stays in the batch as
acknowledged.  (RocketMQ delivers everything from the committed offset again.)  Acknowledged and outstanding messages of
a queue are at most 64 together, the bits of RocketMQ's `cm`.

A batch is a value; every function returns a new one.  When all of it is acknowledged it `is_done`: it locks nothing,
and says up to where the group has come.

Source: RocketMQ's `ConsumerOrderInfoManager`; its document of one queue is `to_json`.  Our own keys in it begin with
"g", and RocketMQ ignores them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise

from gantry.model import documents

WINDOW_MAX = 64  # acknowledged and outstanding messages of one queue; RocketMQ keeps a bit for each in one long
IDLE_MS = 24 * 3600 * 1000  # RocketMQ: CLEAN_SPAN_FROM_LAST

_COUNTS_MAX = 2 * WINDOW_MAX
_NEVER_HEAD = -1  # tries of a message that nobody has been given as the head yet


class OrderVerdict(Enum):
    """What became of a request about one message of a queue."""

    TAKEN = "taken"  # the batch changed
    DONE = "done"  # acknowledged before
    STALE = "stale"  # of a former batch: the message was, or will be, delivered again
    FOREIGN = "foreign"  # no message of the batch


@dataclass(frozen=True, slots=True)
class OrderedBatch:
    """The outstanding batch of one queue in one group.

    offsets     queue offsets from the head to the last one delivered, ascending: delivered or acknowledged before
    acked       of these, and behind the last one, what was acknowledged
    visible_ms  by offset, when a message becomes visible that has a time of its own
    counts      by offset, how often a message was delivered before; behind the last one: when it is delivered next
    tries       how often the head was delivered before as the head
    owner       the client that popped it, when that keeps the queue locked while it lives; else empty
    """

    pop_ms: int
    invisible_ms: int
    offsets: tuple[int, ...]
    attempt_id: str = ""
    acked: frozenset[int] = frozenset()
    visible_ms: Mapping[int, int] = field(default_factory=dict)
    counts: Mapping[int, int] = field(default_factory=dict)
    tries: int = 0
    owner: str = ""

    @property
    def outstanding(self) -> list[int]:
        """The delivered messages that are not acknowledged, in order."""
        return [offset for offset in self.offsets if offset not in self.acked]

    @property
    def committed(self) -> int:
        """The consumer offset: the first message that is not acknowledged, or the one behind the last."""
        first = next((offset for offset in self.offsets if offset not in self.acked), self.offsets[-1] + 1)
        while first in self.acked:
            first += 1
        return first

    @property
    def is_done(self) -> bool:
        """Whether nothing of it is outstanding, and nothing behind it was delivered before."""
        return not self.counts and self.acked.issuperset(self.offsets) and max(self.acked) < self.committed

    @property
    def visible_at_ms(self) -> int:
        """When the last outstanding message is visible again; 0 when nothing is outstanding."""
        end_ms = self.pop_ms + self.invisible_ms
        return max((self.visible_ms.get(offset, end_ms) for offset in self.outstanding), default=0)

    def is_locked(self, attempt_id: str, now_ms: int) -> bool:
        """Return whether this attempt may get nothing of the queue now."""
        return now_ms < self.visible_at_ms and not self.is_repeated_by(attempt_id)

    @property
    def is_renewable(self) -> bool:
        """Whether the queue stays locked while the owner lives; not when the owner gave a message another time."""
        outstanding = self.outstanding
        return self.owner != "" and bool(outstanding) and self.visible_ms.keys().isdisjoint(outstanding)

    def is_idle(self, now_ms: int) -> bool:
        """Return whether it may be forgotten: nobody asked for 24 h, and it keeps no message from being repeated."""
        is_old = now_ms - max(self.pop_ms, self.visible_at_ms) > IDLE_MS
        return is_old and not any(offset > self.committed for offset in self.acked)

    def has_used_up(self, attempt_id: str, times_max: int) -> bool:
        """Return whether the head would be delivered again more often than the group's attempts allow."""
        return bool(self.outstanding) and not self.is_repeated_by(attempt_id) and self.tries >= times_max

    def acknowledge(self, offset: int, pop_ms: int) -> tuple[OrderedBatch, OrderVerdict]:
        """Acknowledge one message of the batch that was popped at this time."""
        verdict = self._verdict(offset, pop_ms)
        return (self._with_acked(offset, 0), verdict) if verdict is OrderVerdict.TAKEN else (self, verdict)

    def give_up(self) -> OrderedBatch:
        """Take the head out of the batch, because it goes to the dead-letter topic."""
        return self._with_acked(self.outstanding[0], _NEVER_HEAD)

    def change(self, offset: int, pop_ms: int, visible_ms: int) -> tuple[OrderedBatch, OrderVerdict]:
        """Make one message of the batch that was popped at this time visible at another time."""
        verdict = self._verdict(offset, pop_ms)
        if verdict is not OrderVerdict.TAKEN:
            return self, verdict
        return replace(self, visible_ms={**self.visible_ms, offset: visible_ms}), verdict

    def released(self, visible_ms: int) -> OrderedBatch:
        """Return it without its owner, and with messages that have no time of their own visible at this one."""
        return replace(self, owner="", invisible_ms=visible_ms - self.pop_ms)

    def is_repeated_by(self, attempt_id: str) -> bool:
        """Return whether this attempt popped the batch."""
        return attempt_id != "" and attempt_id == self.attempt_id

    def _verdict(self, offset: int, pop_ms: int) -> OrderVerdict:
        if offset < self.committed or offset in self.acked:
            return OrderVerdict.DONE
        if pop_ms != self.pop_ms:
            return OrderVerdict.STALE
        return OrderVerdict.TAKEN if offset in self.offsets else OrderVerdict.FOREIGN

    def _with_acked(self, offset: int, tries_of_next: int) -> OrderedBatch:
        is_head = offset == self.committed
        return replace(
            self,
            acked=self.acked | {offset},
            visible_ms={one: ms for one, ms in self.visible_ms.items() if one != offset},
            counts={one: count for one, count in self.counts.items() if one != offset},
            tries=tries_of_next if is_head else self.tries,
        )

    def to_json(self) -> dict[str, object]:
        """Return RocketMQ's document of one queue."""
        first, last = self.offsets[0], self.offsets[-1]
        bits = sum(1 << number for number, offset in enumerate(self.offsets) if offset in self.acked)
        document: dict[str, object] = {
            "popTime": self.pop_ms,
            "i": self.invisible_ms,
            "o": [first, *[offset - first for offset in self.offsets[1:]]],
            "ot": {str(offset): ms for offset, ms in self.visible_ms.items()},
            "oc": {str(offset): count for offset, count in self.counts.items()},
            "l": self.pop_ms,
            "cm": bits - (1 << 64) if bits >= 1 << 63 else bits,
        }
        if self.attempt_id:
            document["a"] = self.attempt_id
        if self.tries:
            document["gt"] = self.tries
        if self.owner:
            document["go"] = self.owner
        if behind := sorted(offset for offset in self.acked if offset > last):
            document["ga"] = behind
        return document


def take(found: Sequence[int], batch: OrderedBatch | None, count_max: int) -> list[int]:
    """Return which of the messages found behind the committed offset are delivered: those not acknowledged.

    found: ascending; to be sure of `count_max`, as many more are needed as the batch has acknowledged ones.
    """
    acked = frozenset[int]() if batch is None else batch.acked
    room = WINDOW_MAX - sum(offset >= found[0] for offset in acked) if found else 0
    return [offset for offset in found if offset not in acked][: min(count_max, room)]


def popped(
    batch: OrderedBatch | None,
    found: Sequence[int],
    taken: Sequence[int],
    attempt_id: str,
    now_ms: int,
    invisible_ms: int,
    owner: str = "",
) -> OrderedBatch:
    """Return the new batch of a queue: what `take` returned of `found` is delivered now.

    batch: the former one, which is not locked for this attempt.  The pop time is the present, or later than the former.
    """
    assert taken
    offsets = tuple(offset for offset in found if taken[0] <= offset <= taken[-1])
    if batch is None:
        return OrderedBatch(now_ms, invisible_ms, offsets, attempt_id, owner=owner)
    before, counts, tries = set(batch.outstanding), dict(batch.counts), batch.tries
    if not batch.is_repeated_by(attempt_id):
        for offset in before:
            counts[offset] = counts.get(offset, 0) + 1
        tries += 1
    return OrderedBatch(
        max(now_ms, batch.pop_ms + 1),
        invisible_ms,
        offsets,
        attempt_id,
        acked=frozenset(offset for offset in batch.acked if offset in offsets or offset > taken[-1]),
        counts={offset: counts[offset] for offset in sorted(counts)[:_COUNTS_MAX] if offset >= taken[0]},
        tries=tries if batch.committed == taken[0] and taken[0] in before else 0,
        owner=owner,
    )


def passed(batch: OrderedBatch, offset: int) -> OrderedBatch:
    """Return the batch after everything below this offset was read and nothing of it has to be delivered."""
    assert offset > 0
    behind = frozenset(one for one in batch.acked if one >= offset)
    counts = {one: count for one, count in batch.counts.items() if one >= offset}
    return replace(batch, offsets=(offset - 1,), acked=behind | {offset - 1}, visible_ms={}, counts=counts, tries=0)


def from_json(value: object, what: str) -> OrderedBatch | None:
    """Return the batch of RocketMQ's document of one queue; None for one without messages.  ValueError: neither."""
    source = documents.document(value, what)
    numbers = _integers(source, "o")
    if not numbers:
        return None
    offsets = (numbers[0], *[numbers[0] + number for number in numbers[1:]])
    if numbers[0] < 0 or len(offsets) > WINDOW_MAX or any(low >= high for low, high in pairwise(offsets)):
        raise ValueError(f"{what}: o is not a list of at most {WINDOW_MAX} ascending offsets")
    bits = documents.integer(source, "cm")
    acked = {offset for number, offset in enumerate(offsets) if bits >> number & 1}
    acked.update([offset for offset in _integers(source, "ga") if offset > offsets[-1]][: WINDOW_MAX - len(offsets)])
    return OrderedBatch(
        documents.integer(source, "popTime"),
        documents.integer(source, "i"),
        offsets,
        documents.text(source, "a"),
        acked=frozenset(acked),
        visible_ms=_by_offset(source, "ot"),
        counts=_by_offset(source, "oc"),
        tries=documents.integer(source, "gt"),
        owner=documents.text(source, "go"),
    )


def _integers(source: documents.Document, name: str) -> list[int]:
    values = documents.array(source, name)
    return [documents.integer({name: value}, name) for value in values]


def _by_offset(source: documents.Document, name: str) -> dict[int, int]:
    table = documents.mapping(source, name)
    return {int(offset): documents.integer(table, offset) for offset in list(table)[:_COUNTS_MAX]}
