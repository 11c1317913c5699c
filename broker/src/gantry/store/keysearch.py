"""Looking for records by a key of the index, in steps that keep nobody waiting.

Anybody can make a chain of the index long: the slot of a key is public.  So nobody walks a chain to its end in one
piece.  A search examines at most `EXAMINED_MAX` index entries, gives way after every few of them, and has the cold
reader bring in what is not in memory, pages of the index as well as records.  `is_cut` says that it ended before the
chain did: what was not found may be there all the same, and a caller that decides by it has to refuse
(`TOO_LONG`).

A search is a generator: it yields None to give way, or a function that reads something and calls the one that it is
given when that is in memory.  `searched` runs it for a coroutine, `drive` for code that has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from gantry.errors import Refusal
from gantry.leaves import records
from gantry.store.coldrange import ColdRange
from gantry.store.indexfile import WALKED_AT_ONCE
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.store.store import Store

_T = TypeVar("_T")
_Result = TypeVar("_Result")
Begin = Callable[[Callable[[], None]], None]
Steps = Generator[Begin | None, None, _T]

FOREVER_MS = 1 << 62
# RocketMQ's maxMsgsNumBatch: no query answers more.
HITS_MAX = 64
# Entries of other keys in the same slots of the index, and of later times: a million, half a second of steps.
STEPS_MAX = 16_384
EXAMINED_MAX = STEPS_MAX * WALKED_AT_ONCE
_HITS_AT_ONCE = 16
_HEAD_BYTES = records.RECORD_BYTES_MIN
TOO_LONG = Refusal(
    ResponseCode.SYSTEM_BUSY, f"more than {EXAMINED_MAX} entries of the key index stand before what was asked for"
)


class KeyQuestion(NamedTuple):
    """Records of a topic with a key (or unique key), stored within [begin_ms, end_ms]."""

    topic: str
    key: str
    begin_ms: int = 0
    end_ms: int = FOREVER_MS


class KeyHits(NamedTuple):
    """(log offset, size) of matching records, newest first; is_cut: the search ended before the chain did."""

    places: list[tuple[int, int]]
    is_cut: bool


async def searched(steps: Steps[_T]) -> _T:
    """Run a search, with other tasks in between."""
    while True:
        try:
            begin = next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result
        await _waited(begin)


def resolved(steps: Steps[_T], then: Callable[[_T], _Result | Awaitable[_Result]]) -> _Result | Awaitable[_Result]:
    """Return `then` of a search's result: at once when nothing has to be waited for, else to be awaited."""
    try:
        begin = next(steps)
    except StopIteration as end:
        return then(end.value)
    return _resolved_later(begin, steps, then)


async def _resolved_later(
    begin: Begin | None, steps: Steps[_T], then: Callable[[_T], _Result | Awaitable[_Result]]
) -> _Result:
    await _waited(begin)
    result = then(await searched(steps))
    return await result if isinstance(result, Awaitable) else result


async def _waited(begin: Begin | None) -> None:
    if begin is None:
        await asyncio.sleep(0)
    else:
        there = asyncio.Event()
        begin(there.set)
        await there.wait()


def drive(steps: Steps[_T], done: Callable[[_T], None]) -> None:
    """Run a search and call `done` with its result, at once when nothing has to be waited for."""
    try:
        begin = next(steps)
    except StopIteration as end:
        done(end.value)
        return
    go_on = partial(drive, steps, done)
    if begin is None:
        asyncio.get_running_loop().call_soon(go_on)
    else:
        begin(go_on)


def search(store: Store, question: KeyQuestion, count_max: int = HITS_MAX) -> Steps[KeyHits]:
    """Look for the newest records that answer the question, at most `count_max`."""
    found: dict[int, int] = {}
    hits: list[int] = []
    looked_at = steps = 0
    for hit in store.reader.walk(*question):
        if isinstance(hit, int):
            hits.append(hit)
            if len(hits) < min(_HITS_AT_ONCE, count_max - len(found)):
                continue
        steps += 1
        if steps >= STEPS_MAX:
            return KeyHits(list(islice(found.items(), count_max)), True)
        looked_at += len(hits)
        if looked_at > _HITS_AT_ONCE or not isinstance(hit, int):
            looked_at = 0
            yield partial(store.bring_in, hit) if isinstance(hit, ColdRange) else None
        yield from _look_at(store, question, hits, found)
        hits.clear()
        if len(found) >= count_max:
            break
    yield from _look_at(store, question, hits, found)
    return KeyHits(list(islice(found.items(), count_max)), False)


def _look_at(store: Store, question: KeyQuestion, hits: list[int], found: dict[int, int]) -> Steps[None]:
    """Add the matching hits to `found`."""
    if hits:
        yield from warm(store, hits)
    wanted = question.key.encode()
    for one in hits:
        record = yield from looked_up(store, partial(store.reader.with_key, one, question.topic, wanted))
        if record is not None and question.begin_ms <= record.store_ms <= question.end_ms:
            found.setdefault(one, record.size)


def warm(store: Store, log_offsets: list[int]) -> Steps[None]:
    """Bring possible records into memory: their heads, which hold their sizes, then all of them."""
    reader = store.reader
    there = [one for one in log_offsets if reader.holds(one, _HEAD_BYTES)]
    heads = [(one, _HEAD_BYTES) for one in there if reader.is_cold([(one, _HEAD_BYTES)])]
    if heads:
        yield partial(store.bring_in, heads)
    # Also those whose head was there: it may be in a page that somebody else read, and the rest in the next one.
    sizes = [(one, size) for one in there if (size := reader.size_at(one))]
    places = [place for place in sizes if reader.is_cold([place])]
    if places:
        yield partial(store.bring_in, places)


def record_at(store: Store, log_offset: int) -> Steps[records.Record | None]:
    """Return the dispatched record that begins at this log offset; None for anything else that stands there."""
    yield from warm(store, [log_offset])
    return (yield from looked_up(store, partial(store.reader.record_at, log_offset)))


def looked_up(store: Store, look: Callable[[], _T]) -> Steps[_T]:
    """Return what `look` returns; queue entries that it needs and that are not in memory are brought in first.

    Records that it reads have to be in memory.  It is called again from its beginning, so it must change nothing.
    """
    brought: set[ColdRange] = set()
    while isinstance(found := store.reader.look(look, brought), ColdRange):
        brought.add(found)
        yield partial(store.bring_in, found)
    return found


def records_with(
    store: Store, question: KeyQuestion, count_max: int = HITS_MAX
) -> Steps[tuple[list[records.Record], bool]]:
    """Return the records that a search finds, newest first, and whether it was cut."""
    found = yield from search(store, question, count_max)
    there = []
    for log_offset, _ in found.places:
        there.append((yield from looked_up(store, partial(store.reader.record_at, log_offset))))
    return [record for record in there if record is not None], found.is_cut
