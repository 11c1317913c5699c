"""Rows that are made of an Arrow batch at once are those that are made of it one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantry.clock import SystemClock
from gantry.leaves import properties
from gantry.model.ids import UniqueIds
from pyspark_gantrymq import sinkcolumns

TEXT = st.none() | st.text(st.characters(blacklist_categories=("Cs",)), max_size=4) | st.just("x" * 300)
NAME = st.sampled_from(["colour", "名", "shape"]) | st.sampled_from(["KEYS", "", "a\x02"])
MAPS = st.none() | st.dictionaries(NAME, TEXT, max_size=3).map(lambda pairs: list(pairs.items()))
COLUMNS: dict[str, tuple[st.SearchStrategy[Any], pa.DataType]] = {
    "body": (st.none() | st.binary(max_size=20), pa.binary()),
    "topic": (st.none() | st.sampled_from(["t", "", "a b"]), pa.string()),
    "tags": (TEXT, pa.string()),
    "keys": (TEXT, pa.string()),
    "properties": (MAPS, pa.map_(pa.string(), pa.string())),
    "shardingKey": (TEXT, pa.string()),
    "msgId": (TEXT, pa.string()),
}
OFTEN: dict[str, list[Any]] = {
    "body": [b"a", b"", b"c\x01\x02"],
    "topic": ["t", None, "t2"],
    "tags": ["red", None, ""],
    "keys": ["k1 k2", "k", None],
    "properties": [[("colour", "blue"), ("名", "值")], None, []],
    "shardingKey": [None, "s", ""],
    "msgId": [None, "MINE", ""],
}


def ids() -> UniqueIds:
    class Stopped(SystemClock):
        def now_ms(self) -> int:
            return 1_700_000_000_000

    return UniqueIds(bytes(4), 1, 1, Stopped())


def batch(values: dict[str, list[Any]]) -> pa.RecordBatch:
    arrays = [pa.array(each, COLUMNS[name][1]) for name, each in values.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(values))


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sets(st.sampled_from(list(COLUMNS)[1:])), st.integers(0, 4), st.integers(0, 2))
def test_they_are_the_same_whatever_the_rows(data: st.DataObject, more: set[str], count: int, skipped: int) -> None:
    names = ["body", *sorted(more)]
    made = batch({name: data.draw(st.lists(COLUMNS[name][0], min_size=count, max_size=count)) for name in names})
    made = made.slice(min(skipped, count))
    at_once = sinkcolumns.at_once(made, "default", ids(), 200)
    if at_once is not None:
        assert list(at_once) == list(sinkcolumns.one_by_one(made, "default", ids(), 200))


@pytest.mark.parametrize("left_out", [None, *list(OFTEN)[1:]])
def test_rows_as_they_mostly_are_need_not_be_looked_at_one_by_one(left_out: str | None) -> None:
    made = batch({name: values for name, values in OFTEN.items() if name != left_out})
    found = sinkcolumns.at_once(made, "default", ids(), 32_767)
    assert found is not None
    rows = list(found)
    assert rows == list(sinkcolumns.one_by_one(made, "default", ids(), 32_767))
    assert [properties.parse(row.packed)["UNIQ_KEY"] for row in rows] == [row.message_id for row in rows]
    assert not any(row.fault for row in rows)


@pytest.mark.parametrize(
    ("column", "value"),
    [("body", None), ("topic", "a b"), ("tags", "a\x01"), ("properties", [("KEYS", "k")]), ("msgId", "x" * 256)],
)
def test_a_row_with_a_fault_is_found(column: str, value: object) -> None:
    made = batch({name: [*values, value if name == column else values[0]] for name, values in OFTEN.items()})
    assert sinkcolumns.at_once(made, "default", ids(), 32_767) is None
    assert [bool(row.fault) for row in sinkcolumns.rows(made, "default", ids())] == [False, False, False, True]


def test_properties_that_are_too_many_for_a_half_are_a_fault() -> None:
    made = batch({"body": [b"x"], "properties": [[("name", "x" * 100)]]})
    (row,) = sinkcolumns.rows(made, "t", ids(), 100)
    assert row.fault == "properties of 148 bytes, 100 are allowed"
