from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantry.leaves import COMPILED, hashes, queues
from gantry.store.background import in_memory
from gantry.store.disk import RealFile
from gantry.store.fetched import Fetched, FetchStatus
from gantry.store.store import Store
from testkit.keyed import query
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.smallstore import bodies, message, opened, parse, small


class Odd:
    """Wants messages with an odd body, told by a property."""

    names = (b"body",)

    def __init__(self, cost: int = 1) -> None:
        self.cost = cost
        self.seen = 0

    def matches(self, values: Sequence[bytes | None]) -> bool:
        self.seen += 1
        return values[0] is not None and int(values[0]) % 2 == 1


def _counted(store: Store, count: int) -> None:
    for number in range(count):
        store.append([message(body=b"%d" % number, pairs={"body": str(number)})])


def _sifted(
    store: Store, offset: int, wanted: Odd, count_max: int = 99, bytes_max: int = 1 << 20, **more: Any
) -> tuple[Fetched, list[int], int]:
    fetched = store.reader.candidates("orders", 0, offset, 800, 1 << 20, None)
    assert not fetched.buffers
    looked_at = store.reader.sift(fetched, ("orders", 0, offset), wanted, count_max, bytes_max, **more)
    assert fetched.bytes == sum(map(len, fetched.buffers))
    return fetched, [int(one.body) for buffer in fetched.buffers for one in parse(bytes(buffer), 0)], looked_at


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return opened(small(tmp_path))


def _numbered(count: int, **more: object) -> list:
    return [message(body=b"%d" % number, **more) for number in range(count)]


def test_a_batch_has_the_stored_bytes_neighbours_joined(store: Store) -> None:
    store.append(_numbered(5))
    fetched = store.reader.fetch("orders", 0, 1, 3, 1 << 20, None)
    assert fetched.status is FetchStatus.FOUND and fetched.next_offset == 4
    assert (fetched.min_offset, fetched.max_offset) == (0, 5)
    assert len(fetched.buffers) == 1 and fetched.bytes == len(fetched.buffers[0]) == sum(s for _, s in fetched.places)
    found = list(parse(bytes(fetched.buffers[0]), 0))
    assert [one.body for one in found] == [b"1", b"2", b"3"]
    assert [one.queue_offset for one in found] == [1, 2, 3]
    assert fetched.lag_bytes == store.dispatched.offset - found[0].log_offset


def test_messages_that_lie_apart_are_apart(store: Store) -> None:
    store.append([message(queue_id=number % 2, body=b"%d" % number) for number in range(6)])
    fetched = store.reader.fetch("orders", 1, 0, 32, 1 << 20, None)
    assert [next(parse(bytes(buffer), 0)).body for buffer in fetched.buffers] == [b"1", b"3", b"5"]


def test_many_small_messages_that_lie_apart_come_as_one_piece(store: Store) -> None:
    store.append([message(queue_id=number % 2, body=b"%d" % number) for number in range(14)])
    fetched = store.reader.fetch("orders", 1, 0, 32, 1 << 20, None)
    assert len(fetched.buffers) == 1 and fetched.bytes == len(fetched.buffers[0])
    assert [one.body for one in parse(bytes(fetched.buffers[0]), 0)] == [b"%d" % number for number in range(1, 14, 2)]


def test_records_are_chosen_by_their_properties(store: Store) -> None:
    _counted(store, 10)
    fetched, found, looked_at = _sifted(store, 2, Odd())
    assert (found, fetched.next_offset, looked_at) == ([3, 5, 7, 9], 10, 8)


def test_sifting_ends_with_the_last_message_that_fits(store: Store) -> None:
    _counted(store, 10)
    fetched, found, _ = _sifted(store, 0, Odd(), count_max=2)
    assert (found, fetched.next_offset) == ([1, 3], 5)
    fetched, found, _ = _sifted(store, 0, Odd(), bytes_max=fetched.bytes)
    assert (found, fetched.next_offset) == ([1, 3], 5)
    fetched, found, _ = _sifted(store, 0, Odd(), bytes_max=1)
    assert (found, fetched.next_offset) == ([1], 3)


def test_sifting_without_a_match_says_where_to_go_on(store: Store) -> None:
    _counted(store, 1)
    fetched, found, _ = _sifted(store, 0, Odd())
    assert (fetched.status, found, fetched.next_offset) == (FetchStatus.NO_MATCHED_MESSAGE, [], 1)


def test_sifting_looks_at_the_clock_now_and_then_and_always_gets_on(store: Store) -> None:
    _counted(store, 10)
    fetched, _, looked_at = _sifted(store, 0, Odd(cost=512), is_over=lambda: True)
    assert (looked_at, fetched.next_offset) == (2, 2)
    fetched, _, looked_at = _sifted(store, 0, Odd(cost=5000), is_over=lambda: True)
    assert (looked_at, fetched.next_offset) == (1, 1)


def test_entries_of_lost_messages_between_count_for_where_to_go_on(store: Store) -> None:
    _counted(store, 3)
    store._table.go_on("orders", 0, 5)
    store._table.raise_heads()
    _counted(store, 6)
    fetched = store.reader.candidates("orders", 0, 0, 800, 1 << 20, None)
    assert len(fetched.places) == 9 and fetched.next_offset == 11
    store.reader.sift(fetched, ("orders", 0, 0), Odd(), 2, 1 << 20)
    assert fetched.next_offset == 8  # where the third match stands: 0 1 2 - - 0 1 2 3


def test_a_damaged_record_is_passed_over(store: Store) -> None:
    _counted(store, 4)
    place = store.reader.fetch("orders", 0, 1, 1, 1 << 20, None).places[0]
    fetched = store.reader.fetch("orders", 0, 0, 4, 1 << 20, None)
    fetched.places = queues.Places([fetched.places[0], (place[0], place[1] - 1), *fetched.places[2:]])
    store.reader.sift(fetched, ("orders", 0, 0), Odd(), 9, 1 << 20)
    assert len(fetched.places) == 1


def test_an_entry_that_is_damaged_and_crosses_a_segment_s_end_is_passed_over(store: Store) -> None:
    segment_bytes = store.settings.segment_bytes
    _counted(store, 4)
    while store.dispatched.offset < segment_bytes + 100:
        store.append([message("others", body=bytes(2000))])
    queue = store._table.get("orders", 0)
    assert queue is not None and queue.stored == 0
    queue._tail[20:32] = (segment_bytes - 50).to_bytes(8, "big") + (100).to_bytes(4, "big")
    found, offset = [], 0
    while offset < 4:
        fetched = store.reader.fetch("orders", 0, offset, 32, 1 << 20, None)
        found += [(fetched.status.name, [one.body for one in parse(b"".join(fetched.buffers), 0)])]
        assert fetched.next_offset > offset
        offset = fetched.next_offset
    assert found == [("FOUND", [b"0"]), ("MESSAGE_WAS_REMOVING", []), ("FOUND", [b"2", b"3"])]


def test_the_first_message_comes_whatever_its_size(store: Store) -> None:
    store.append([message(body=b"x" * 5000), message()])
    fetched = store.reader.fetch("orders", 0, 0, 32, 10, None)
    assert len(fetched.places) == 1 and fetched.next_offset == 1


def test_tags_are_filtered_by_their_hash(store: Store) -> None:
    store.append([message(body=tag.encode(), tags=tag) for tag in "abcab"])
    codes = frozenset({hashes.java_hash("b")})
    fetched = store.reader.fetch("orders", 0, 0, 32, 1 << 20, codes)
    assert [next(parse(bytes(buffer), 0)).body for buffer in fetched.buffers] == [b"b", b"b"]
    assert fetched.next_offset == 5
    fetched = store.reader.fetch("orders", 0, 2, 1, 1 << 20, frozenset({hashes.java_hash("z")}))
    assert fetched.status is FetchStatus.NO_MATCHED_MESSAGE and fetched.next_offset == 5


@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (5, FetchStatus.OFFSET_OVERFLOW_ONE, 5),
        (6, FetchStatus.OFFSET_OVERFLOW_BADLY, 5),
        (-1, FetchStatus.OFFSET_TOO_SMALL, 0),
    ],
)
def test_offsets_outside_the_queue(store: Store, offset: int, status: FetchStatus, following: int) -> None:
    store.append(_numbered(5))
    fetched = store.reader.fetch("orders", 0, offset, 32, 1 << 20, None)
    assert (fetched.status, fetched.next_offset, fetched.bytes) == (status, following, 0) and not fetched.buffers


def test_a_queue_that_does_not_exist(store: Store) -> None:
    fetched = store.reader.fetch("orders", 0, 3, 32, 1 << 20, None)
    assert (fetched.status, fetched.next_offset) == (FetchStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    assert store.queue_range("orders", 0) is None


@pytest.mark.parametrize("codes", [None, frozenset({hashes.java_hash(b"red")})])
@pytest.mark.parametrize(
    "damage", [{40: (1 << 40).to_bytes(8, "big")}, {47: b"\x01"}, {40: bytes(20)}], ids=["place", "record", "none"]
)
def test_an_entry_that_names_no_record_is_passed_over_alone(
    store: Store, damage: dict[int, bytes], codes: frozenset[int] | None
) -> None:
    store.append(_numbered(5, tags="red"))
    queue = store.reader._table.get("orders", 0)
    assert queue is not None
    for at, wrong in damage.items():
        queue._tail[at : at + len(wrong)] = wrong
    if 47 not in damage:  # of a record that is not the first nobody looks at the head
        assert store.reader.fetch("orders", 0, 0, 32, 1 << 20, codes).next_offset == 2
    fetched = store.reader.fetch("orders", 0, 2, 32, 1 << 20, codes)
    assert (fetched.status, fetched.next_offset) == (FetchStatus.MESSAGE_WAS_REMOVING, 3)
    assert len(store.reader.fetch("orders", 0, 3, 32, 1 << 20, codes).places) == 2, "those behind it are good"


def test_entries_that_are_none_are_passed_over_together(store: Store) -> None:
    store.append(_numbered(5))
    queue = store.reader._table.get("orders", 0)
    assert queue is not None
    queue._tail[20:80] = bytes(60)
    fetched = store.reader.fetch("orders", 0, 1, 32, 1 << 20, None)
    assert (fetched.status, fetched.next_offset) == (FetchStatus.MESSAGE_WAS_REMOVING, 4)
    queue._tail[80:] = bytes(20)
    assert store.reader.fetch("orders", 0, 1, 32, 1 << 20, None).next_offset == 5


def test_a_record_is_found_by_its_log_offset_only_through_its_queue_entry(store: Store) -> None:
    first, second = message(body=b"one"), message(body=b"two")
    store.append([first, second])
    found = store.reader.record_at(second.log_offset)
    assert found is not None and found.body == b"two"
    for offset in itertools.chain(range(-3, 40), (second.log_offset + 1, store.written.offset, 1 << 62)):
        if offset not in (first.log_offset, second.log_offset):
            assert store.reader.record_at(offset) is None


def test_a_record_faked_inside_a_body_is_not_one(store: Store) -> None:
    honest = message(body=b"honest")
    store.append([honest])
    record = bytearray(store.reader.fetch("orders", 0, 0, 1, 1 << 20, None).buffers[0])
    # The forger even knows where his body will stand.
    carrier = message(body=bytes(len(record)))
    at = store.written.offset + 88
    record[28:36] = at.to_bytes(8, "big")
    carrier.body = bytes(record)
    store.append([carrier])
    assert store.reader._log.record(at, len(record), store.written.offset) is not None
    assert store.reader.record_at(at) is None


def test_records_are_found_by_key_newest_first_and_compared(store: Store) -> None:
    store.append([message(body=b"%d" % number, keys=f"k{number % 2} all") for number in range(6)])
    store.append([message("bills", keys="k0")])
    found = query(store.reader, "orders", "k0", 32, 0, 1 << 50)
    assert [next(parse(bytes(one), 0)).body for one in found] == [b"4", b"2", b"0"]
    assert len(query(store.reader, "orders", "all", 2, 0, 1 << 50)) == 2
    # "Aa" and "BB" have the same hash.
    store.append([message(body=b"Aa", keys="Aa"), message(body=b"BB", keys="BB")])
    store.tick(0)
    (one,) = query(store.reader, "orders", "BB", 32, 0, 1 << 50)
    assert next(parse(bytes(one), 0)).body == b"BB"


def test_queues_are_searched_by_time(tmp_path: Path) -> None:
    clock = SimClock(10_000)
    store = opened(small(tmp_path), clock)
    for _ in range(5):
        store.append([message(), message()])
        clock.advance(100)
    search = store.reader.offset_by_time
    assert [search("orders", 0, at) for at in (0, 10_000, 10_001, 10_100, 10_400, 10_401)] == [0, 0, 2, 2, 8, 10]
    assert [search("orders", 0, at, upper=True) for at in (0, 9_999, 10_000, 10_150, 99_999)] == [0, 0, 1, 3, 9]
    assert search("orders", 9, 10_000) == 0
    assert store.reader.store_time("orders", 0, 3) == 10_100 and store.reader.store_time("orders", 0, 10) is None
    assert store.reader.oldest_ms() == 10_000


def test_times_do_not_fall_when_the_wall_clock_does(tmp_path: Path) -> None:
    clock = SimClock(10_000)
    store = opened(small(tmp_path), clock)
    store.append([message()])
    clock.jump(-5_000)
    store.append([message()])
    assert store.reader.store_time("orders", 0, 1) == 10_000
    store.close()
    again = opened(small(tmp_path), clock)
    again.append([message()])
    assert again.reader.store_time("orders", 0, 2) == 10_000


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from("abc"), st.booleans()), max_size=60),
    st.integers(1, 9),
)
def test_pulling_gives_each_queue_its_messages_once_and_in_order(
    plan: list[tuple[int, int, str, bool]], count_max: int
) -> None:
    clock = SimClock()
    store = opened(small("/s"), clock, disk=SimDisk())  # type: ignore[arg-type]
    kept: dict[int, list[bytes]] = {}
    for number, (queue_id, size, tag, tick) in enumerate(plan):
        body = b"%d" % number + b"." * size * 500
        store.append([message(queue_id=queue_id, body=body, tags=tag)])
        kept.setdefault(queue_id, []).append(body)
        if tick:
            clock.advance(11_000)
            store.tick(clock.now_ms())
    for queue_id, expected in kept.items():
        assert bodies(store, queue_id=queue_id) == expected
        offset, found = 0, []
        while offset < len(expected):
            fetched = store.reader.fetch("orders", queue_id, offset, count_max, 3000, None)
            assert fetched.next_offset > offset
            found += [one.body for one in parse(b"".join(bytes(buffer) for buffer in fetched.buffers), 0)]
            offset = fetched.next_offset
        assert found == expected


def _evict(store: Store) -> None:
    """Write the log to the disk and drop its pages from the page cache; none of them has been touched by a map."""
    file = store._log.segments.at(0).file
    assert isinstance(file, RealFile)
    file.sync_data()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.skipif(not COMPILED, reason="missing compiled leaves; a C compiler and `make dev` build them")
def test_messages_far_behind_are_cold_only_when_their_pages_are_not_in_memory(tmp_path: Path) -> None:
    store = opened(small(tmp_path, segment_bytes=1 << 20, warm_bytes=1))
    store.append([message(body=b"x" * 4096) for _ in range(100)])
    places = [(entry[0], entry[1]) for number in range(100) if (entry := store.reader.entry("orders", 0, number))]
    _evict(store)
    if store._log.in_memory(places):
        pytest.skip(f"missing a file system that drops pages: {tmp_path} is on none")
    fetched = store.reader.fetch("orders", 0, 50, 10, 1 << 20, None, may_wait=False)
    assert fetched.is_cold and len(fetched.places) == 10 and not fetched.buffers
    assert not store._log.in_memory(places[50:51]), "the first record was read to look at its head"
    told: list[int] = []
    store.bring_in(fetched.places, lambda: told.append(1))
    again = store.reader.fetch("orders", 0, 50, 10, 1 << 20, None, may_wait=False)
    assert told and not again.is_cold and again.places == fetched.places and again.bytes > 40_960
    for form in (list, queues.Places):
        assert store._log.in_memory(form(places[50:60])) and store._log.in_memory(form(places[50:60:3]))
        assert not store._log.in_memory(form(places[50:100:49])), "two places"
        assert not store._log.in_memory(form(places[50:60] + places[98:])), "neighbours, and others far behind them"


@pytest.mark.skipif(not COMPILED, reason="missing compiled leaves; a C compiler and `make dev` build them")
def test_places_outside_of_a_segment_are_not_in_memory(tmp_path: Path) -> None:
    store = opened(small(tmp_path, segment_bytes=1 << 20))
    store.append([message()])
    segment = store._log.segments.at(0)
    inside, odd = (0, 10), [(1 << 20, 1), (-1, 1), (0, -1), ((1 << 20) - 1, 2), ((1 << 63) - 1, 1)]
    assert in_memory(segment.file, segment.view, 0, [inside], 0)
    assert not any(in_memory(segment.file, segment.view, 0, [inside, one], 0) for one in odd)
    assert in_memory(segment.file, segment.view, 0, [], 0)


def test_the_head_of_a_cold_record_is_looked_at_only_after_it_was_brought_in(tmp_path: Path) -> None:
    store = opened(small(tmp_path, segment_bytes=1 << 20, warm_bytes=1))
    store.append(_numbered(3))
    store._log.in_memory = lambda places: False  # type: ignore[method-assign]
    store._log.segments.at(0).file.pwrite(bytes(100), 0)  # looking at it would be seen by what is found
    fetched = store.reader.fetch("orders", 0, 0, 3, 1 << 20, None, may_wait=False)
    assert fetched.status is FetchStatus.FOUND and fetched.is_cold and not fetched.buffers
    assert store.reader.fetch("orders", 0, 0, 3, 1 << 20, None).status is FetchStatus.MESSAGE_WAS_REMOVING
