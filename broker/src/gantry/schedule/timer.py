"""The timer: which messages wait for a time of delivery, and which of them are due.

It holds only queue offsets of the timer topic; the due time of each is in its queue entry.  Two ranges:

    far     by ten seconds of due time, an array of 8-byte offsets each
    near    what is due within the next seconds, by slots of ten milliseconds

The horizon divides them.  It moves up as time passes (`approach`), and what lies below it goes from far to near.  A
slot is named by its end, and delivered when that has passed: never early, up to ten milliseconds late by construction.

Memory: about 9 bytes per far message, 50 per near one.  This module uses no clock, no disk and no messages.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice

from gantry.schedule.held import NEVER_MS, HeldBack, HeldUntil

SLOT_MS = 10
BUCKET_MS = 10_000

_PIECE = 256
_BUCKETS_AT_ONCE = 1000


class Timer:
    """Pending offsets by due time.  Loop thread only."""

    def __init__(self) -> None:
        self.pending = 0
        self.horizon_ms = 0
        self._far: dict[int, array[int]] = {}
        self._buckets: list[int] = []  # a heap of the keys of `_far`; a bucket stays until its time, also an empty one
        self._moved = 0  # how many offsets of the first bucket have gone to near
        self._near: dict[int, deque[int]] = {}
        self._slots: list[int] = []  # a heap of the ends of near slots
        self.moments = HeldBack()  # of what is due: until the wall clock, in ms, has come to it
        self.durations = HeldBack()  # of what is due: until it has passed by the monotonic clock, in ms
        self._held = self.moments, self.durations
        self._lows: dict[int, int] = {}  # by near slot: the lowest offset that ever was in it

    def add(self, offset: int, due_ms: int) -> None:
        """Add a pending offset that is due at this time."""
        self.pending += 1
        if due_ms < self.horizon_ms:
            self._add_near(offset, due_ms)
        else:
            self._bucket(due_ms).append(offset)

    def _bucket(self, due_ms: int) -> array[int]:
        number = due_ms // BUCKET_MS
        found = self._far.get(number)
        if found is None:
            found = self._far[number] = array("q")
            heappush(self._buckets, number)
        return found

    def add_all(self, offsets: Sequence[int], dues_ms: Sequence[int]) -> None:
        """Add pending offsets that are due at these times."""
        for offset, due_ms in zip(offsets, dues_ms, strict=True):
            bucket = self._far.get(due_ms // BUCKET_MS) if due_ms >= self.horizon_ms else None
            if bucket is None:
                self.add(offset, due_ms)
            else:
                bucket.append(offset)
                self.pending += 1

    def approach(
        self, until_ms: int, dues_of: Callable[[Sequence[int]], Sequence[int | None] | None]
    ) -> Iterator[None]:
        """Move everything that is due before this time from far to near, in slices.

        dues_of: when the messages at these queue offsets are due; None for one that is no longer there, and instead of
        all when that is not known yet: the next call goes on with them.
        """
        self.horizon_ms = max(self.horizon_ms, (until_ms // BUCKET_MS + 1) * BUCKET_MS)
        while self._buckets and self._buckets[0] * BUCKET_MS < self.horizon_ms:
            # Nothing is added here any more: what is due below the horizon goes to near at once.
            offsets = self._far[self._buckets[0]]
            piece = offsets[self._moved : self._moved + _PIECE]
            if not piece:
                del self._far[heappop(self._buckets)]
                self._moved = 0
                continue
            dues_ms = dues_of(piece)
            if dues_ms is None:
                return
            self._moved += len(piece)
            for offset, due_ms in zip(piece, dues_ms, strict=True):
                if due_ms is None:
                    self.pending -= 1
                    continue
                near = self._near.get(-(-due_ms // SLOT_MS) * SLOT_MS)
                if near is not None and near[0] < offset:
                    near.append(offset)
                else:
                    self._add_near(offset, due_ms)
            yield

    def _add_near(self, offset: int, due_ms: int) -> None:
        slot = -(-due_ms // SLOT_MS) * SLOT_MS
        offsets = self._near.get(slot)
        if offsets is None:
            offsets = self._near[slot] = deque()
            heappush(self._slots, slot)
            self._lows[slot] = offset
        elif offset < self._lows[slot]:
            self._lows[slot] = offset
        offsets.append(offset)

    def due(self, now_ms: int, count_max: int) -> tuple[int, list[int]]:
        """The slot that is due first, by its end, and offsets of it that are to be delivered next; (0, []): none."""
        if not self._slots or self._slots[0] > now_ms:
            return 0, []
        slot = self._slots[0]
        return slot, list(islice(self._near[slot], count_max))

    def done(self, slot: int, count: int) -> None:
        """Remove the first `count` offsets of the slot: they are delivered."""
        offsets = self._near[slot]
        for _ in range(count):
            offsets.popleft()
        self.pending -= count
        if not offsets:
            del self._near[slot], self._lows[slot]
            heappop(self._slots)

    def hold(self, slot: int, moments: Mapping[int, HeldUntil], durations: Mapping[int, HeldUntil]) -> None:
        """Hold back offsets of the slot that is due first; costs what stands before the last of them."""
        left, passed, stay = self._near[slot], [], moments.keys() | durations.keys()
        while stay:
            offset = left.popleft()
            if offset in stay:
                stay.remove(offset)
            else:
                passed.append(offset)
        left.extendleft(reversed(passed))
        for held, some in zip(self._held, (moments, durations), strict=True):
            for offset, until in some.items():
                held.add(offset, until)
        if not left:
            del self._near[slot], self._lows[slot]
            heappop(self._slots)

    def has(self, offset: int, due_ms: int) -> bool:
        """Return whether this offset, due then, is pending."""
        return self._holding(offset, due_ms) is not None or self._find(offset, due_ms) is not None

    def _holding(self, offset: int, due_ms: int) -> HeldBack | None:
        return next((held for held in self._held if held.has(offset, due_ms)), None)

    def remove(self, offset: int, due_ms: int) -> bool:
        """Remove a pending offset that is due at this time; return False when it is not pending."""
        held = self._holding(offset, due_ms)
        if held is not None:
            held.remove(offset)
            self.pending -= 1
            return True
        found = self._find(offset, due_ms)
        if found is None:
            return False
        self.pending -= 1
        if isinstance(found, deque):
            found.remove(offset)
            if not found:
                end_ms = -(-due_ms // SLOT_MS) * SLOT_MS
                del self._near[end_ms], self._lows[end_ms]
                self._slots.remove(end_ms)
                heapify(self._slots)
        else:
            del found[bisect_left(found, offset)]
        return True

    def _find(self, offset: int, due_ms: int) -> array[int] | deque[int] | None:
        """Return the container that has this offset, due then."""
        near = self._near.get(-(-due_ms // SLOT_MS) * SLOT_MS)
        if near is not None and offset in near:
            return near
        number = due_ms // BUCKET_MS
        far = self._far.get(number)
        if far is None:
            return None
        at = bisect_left(far, offset, self._moved if number == self._buckets[0] else 0)
        return far if at < len(far) and far[at] == offset else None

    @property
    def near_until_ms(self) -> int:
        """Everything that is due before this time has come near."""
        return min(self.horizon_ms, self._buckets[0] * BUCKET_MS) if self._buckets else self.horizon_ms

    def next_ms(self) -> int:
        """Return when `due` may have something next: at the end of the first near slot, else at the horizon."""
        return self._slots[0] if self._slots else self.horizon_ms

    def first_due_ms(self) -> int:
        """Return a time before which nothing pending is due."""
        near = self._slots[0] - SLOT_MS + 1 if self._slots else self.horizon_ms
        for held in self._held:
            if held.dues:
                near = min(near, held.first_due_ms())
        return min(near, self._buckets[0] * BUCKET_MS) if self._buckets else near

    def first_offset(self) -> int | None:
        """Return a lower bound of the pending offsets; None when nothing is pending.  Takes up to some milliseconds."""
        far = [offsets[0] for offsets in self._far.values() if offsets]
        first = min([*far, *self._lows.values(), *[held.first_offset() for held in self._held]])
        return None if first == NEVER_MS else first

    def far_below(self, offset: int, count_max: int) -> Iterator[Sequence[int]]:
        """Offsets below this one that are far or held back, in pieces of at most `count_max`.

        Others may be added and any be removed between two pieces.  An empty piece gives way: so many buckets were
        looked at.
        """
        held = [one for some in self._held for one in some.below(offset)]
        for at in range(0, len(held), count_max):
            yield held[at : at + count_max]
        piece: list[int] = []
        for number, bucket in enumerate(list(self._buckets), 1):
            offsets, low = self._far.get(bucket), 0
            while offsets and bucket * BUCKET_MS >= self.horizon_ms:
                # Ascending: offsets come in the order of their queue.
                at = bisect_left(offsets, low)
                end = min(bisect_left(offsets, offset), at + count_max - len(piece))
                if at >= end:
                    break
                piece += offsets[at:end]
                low = piece[-1] + 1
                if len(piece) == count_max:
                    yield piece
                    piece = []
            if number % _BUCKETS_AT_ONCE == 0:
                yield ()
        if piece:
            yield piece
