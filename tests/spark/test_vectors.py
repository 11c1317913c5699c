"""Columns that are made of many records at once are those that are made of them one by one."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantry.errors import RemoteProtocolError
from gantry.leaves.properties import pack
from gantry.model.message import SYS_COMPRESSED
from gantry.wire import record
from pyspark_gantrymq import rows
from pyspark_gantrymq.columns import COLUMNS, RAW_PROPERTIES
from pyspark_gantrymq.vectors import Pulled
from testkit.storedrun import Stored, run

NAMES = (*COLUMNS, RAW_PROPERTIES)
TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\x01\x02"), min_size=1, max_size=6)
PAIRS = st.dictionaries(st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "__transactionId__"]) | TEXT, TEXT, max_size=6)
ODD = [b"a\x01b\x02a\x01c\x02", b"UNIQ_KEY\x01x", b"a\x01b\x01c\x02", b"\x02\x02", b"a", b"a\x00b\x01c\x02"]
WILD = st.binary(max_size=20) | st.sampled_from(ODD)
STORED = st.builds(
    Stored,
    body=st.binary(max_size=40),
    properties=PAIRS.map(pack) | PAIRS.map(lambda pairs: pack(pairs | {"UNIQ_KEY": "u"})[:-1]) | WILD,
    born_host=st.sampled_from([bytes([10, 0, 0, 1, 0, 0, 4, 0]), bytes([10, 0, 0, 2, 0, 0, 4, 1]), bytes(20)]),
    flag=st.integers(-(2**31), 2**31 - 1),
    born_ms=st.integers(0, 2**41) | st.integers(-(2**63), 2**63 - 1),
    reconsume_times=st.integers(0, 20),
)


def slow(data: bytes, names: tuple[str, ...], end: int, is_checked: bool = True) -> object:
    found = record.messages(data, "b", is_checked)
    return rows.one_by_one([one for one in found if one.queue_offset < end], names)


@settings(max_examples=300, deadline=None)
@given(st.lists(STORED, max_size=6), st.integers(0, 7), st.sets(st.sampled_from(NAMES), min_size=1))
def test_they_are_the_same_whatever_the_records(stored: list[Stored], end: int, wanted: set[str]) -> None:
    names = tuple(name for name in NAMES if name in wanted)
    data = run(stored)
    pulled = Pulled(data, "b")
    batch = pulled.batch(names, end)
    assert batch.equals(slow(data, names, end)) and batch.num_rows == len(pulled.offsets)


def test_what_nearly_everybody_sends_is_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = {"UNIQ_KEY": "7F0000010001", "KEYS": "k", "colour": "grün", "WAIT": "true"}
    sent = [Stored(b"x" * 100, pack(pairs)), Stored(b"", pack({"UNIQ_KEY": "2", "TAGS": "t"}))]
    of_a_batch = [Stored(b"y", pack({"UNIQ_KEY": "3", "WAIT": "false"}) + pack(pairs) + pack({"UNIQ_KEY": "4"}))]
    data = run((sent + of_a_batch) * 3)
    expected = slow(data, NAMES, 9)
    monkeypatch.setattr(rows, "one_by_one", None)
    assert Pulled(data, "b").batch(NAMES, 9).equals(expected)


def test_a_compressed_body_is_unpacked() -> None:
    body = zlib.compress(b"y" * 500)
    data = run([Stored(b"x", pack({"UNIQ_KEY": "1"})), Stored(body, pack({"UNIQ_KEY": "2"}), sys_flag=SYS_COMPRESSED)])
    assert Pulled(data, "b").batch(("body",), 2).column(0).to_pylist() == [b"x", b"y" * 500]


@pytest.mark.parametrize("host", [bytes([10, 0, 0, 1, 0, 0, 4, 0]), bytes(20)])
def test_a_time_that_no_timestamp_can_show_becomes_the_nearest_that_one_can(host: bytes) -> None:
    times = [-(2**63), -1, 0, 2**41, 2**55, 2**63 - 1]
    data = run([Stored(b"x", pack({"UNIQ_KEY": "1"}), born_host=host, born_ms=at) for at in times])
    (found,) = Pulled(data, "b").batch(("bornTimestamp",), 9).to_pydict().values()
    assert [round(at.timestamp() * 1000) for at in found] == [0, 0, 0, 2**41, *[rows.TIME_MS_MAX] * 2]


@pytest.mark.parametrize("flags", [0, SYS_COMPRESSED])
def test_a_body_that_is_damaged_comes_as_it_is_where_nobody_looks_at_checksums(flags: int) -> None:
    whole = run([Stored(b"x" * 50, pack({"UNIQ_KEY": "1"})), Stored(zlib.compress(b"z"), b"", sys_flag=flags)])
    data = whole.replace(b"x" * 50, b"y" * 50)
    with pytest.raises(RemoteProtocolError):
        Pulled(data, "b").batch(NAMES, 9)
    batch = Pulled(data, "b", is_checked=False).batch(NAMES, 9)
    assert batch.equals(slow(data, NAMES, 9, is_checked=False))
    assert batch.column(NAMES.index("body"))[0].as_py() == b"y" * 50


@pytest.mark.parametrize("at", [0, 4, 84, 90, 120])
def test_bytes_that_are_no_good_record_are_an_error(at: int) -> None:
    data = bytearray(run([Stored(b"x" * 50, pack({"UNIQ_KEY": "1"}))]))
    data[at] ^= 0x55
    with pytest.raises(RemoteProtocolError):
        Pulled(bytes(data), "b").batch(NAMES, 9)


def test_an_answer_that_ends_in_the_middle_of_a_record_is_an_error() -> None:
    data = run([Stored(b"x" * 50, pack({"UNIQ_KEY": "1"}))] * 2)
    with pytest.raises(RemoteProtocolError):
        Pulled(data[:-1], "b")
