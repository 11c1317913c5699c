"""Queue entries: packed, counted and selected."""

from __future__ import annotations

import struct

import pytest

from gantry.leaves import hashes, queues

ALL = 1 << 40


def entries(*items: tuple[int, int, int]) -> bytes:
    return queues.pack_entries(items)


def test_entries_read_back_as_packed() -> None:
    data = entries((5, 100, -3), (105, 50, 2**63 - 1))
    assert len(data) == 2 * queues.ENTRY_BYTES
    assert queues.unpack(data, 0) == (5, 100, -3)
    assert queues.unpack(memoryview(data), 20) == (105, 50, 2**63 - 1)
    assert queues.pack_entries([]) == b""


@pytest.mark.parametrize("invalid", [(0, 0, 0), (-1, 10, 0), (5, -1, 0)])
def test_counting_stops_at_what_is_not_valid(invalid: tuple[int, int, int]) -> None:
    data = entries((0, 10, 0), (10, 10, 0), invalid, (20, 10, 0))
    assert queues.valid_count(data, 0, len(data)) == 2
    assert queues.valid_count(data, 60, len(data)) == 1


def test_only_whole_entries_count() -> None:
    data = entries((0, 10, 0), (10, 10, 0))
    assert [queues.valid_count(data, 0, end) for end in (0, 19, 20, 39, 40)] == [0, 0, 1, 1, 2]
    assert queues.valid_count(data, 40, 20) == 0


def test_pre_blank_entries_are_valid_and_no_messages() -> None:
    data = entries((0, queues.PRE_BLANK_SIZE, 0), (70, 10, 0))
    assert queues.valid_count(data, 0, len(data)) == 2
    assert queues.select(data, 0, 2, None, 32, ALL) == ([(70, 10)], 2)


def test_everything_is_selected_up_to_the_count() -> None:
    data = entries(*((number, 10, 0) for number in range(5)))
    assert queues.select(data, 0, 5, None, 3, ALL) == ([(0, 10), (1, 10), (2, 10)], 3)
    assert queues.select(data, 20, 2, None, 32, ALL) == ([(1, 10), (2, 10)], 2)
    assert queues.select(data, 0, 5, None, 0, ALL) == ([], 0)


def test_only_wanted_tags_are_selected_and_the_rest_is_examined() -> None:
    paid, open_ = hashes.java_hash("paid"), hashes.java_hash("open")
    data = entries((0, 10, open_), (10, 10, paid), (20, 10, open_), (30, 10, paid), (40, 10, open_))
    assert queues.select(data, 0, 5, frozenset({paid}), 32, ALL) == ([(10, 10), (30, 10)], 5)
    assert queues.select(data, 0, 5, frozenset({paid}), 1, ALL) == ([(10, 10)], 2)
    assert queues.select(data, 0, 5, frozenset(), 32, ALL) == ([], 5)


def test_a_tags_code_is_compared_by_its_low_32_bits() -> None:
    data = entries((0, 10, -5), (10, 10, 2**32 - 5), (20, 10, 5 - 2**32))
    assert queues.select(data, 0, 3, frozenset({-5}), 32, ALL) == ([(0, 10), (10, 10)], 3)
    assert queues.select(data, 0, 3, frozenset({5}), 32, ALL) == ([(20, 10)], 3)


def test_the_bytes_are_limited_but_the_first_message_always_goes() -> None:
    data = entries((0, 100, 0), (100, 50, 0), (150, 10, 0))
    assert queues.select(data, 0, 3, None, 32, 10) == ([(0, 100)], 1)
    assert queues.select(data, 0, 3, None, 32, 150) == ([(0, 100), (100, 50)], 2)
    assert queues.select(data, 0, 3, None, 32, 149) == ([(0, 100)], 1)


def test_an_invalid_entry_ends_the_selection() -> None:
    data = entries((0, 10, 0)) + bytes(20) + entries((10, 10, 0))
    assert queues.select(data, 0, 3, None, 32, ALL) == ([(0, 10)], 1)


def test_nothing_behind_the_buffer_is_read() -> None:
    data = entries((0, 10, 0), (10, 10, 0))
    assert queues.select(data, 0, 99, None, 32, ALL) == ([(0, 10), (10, 10)], 2)
    assert queues.select(data + b"\0" * 19, 0, 99, None, 32, ALL)[1] == 2
    assert queues.select(data, 40, 1, None, 32, ALL) == ([], 0)
    with pytest.raises(struct.error):
        queues.unpack(data, 21)
