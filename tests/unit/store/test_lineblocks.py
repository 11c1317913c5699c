from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gantry.store.lineblocks import LineBlocks
from gantry.store.statefile import Encoded, contents_of, encode, line, pieces


def document_of(blocks: LineBlocks[str]) -> dict[str, object]:
    text = b"".join(pieces(contents_of({"table": blocks.lines()})))
    found: dict[str, object] = json.loads(text)["table"]
    return found


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.one_of(st.none(), st.integers(0, 9), st.just("save")))))
def test_what_is_encoded_is_the_table(changes: list[tuple[str, object]]) -> None:
    table: dict[str, object] = {"a": 1}
    blocks: LineBlocks[str] = LineBlocks(table.get, is_first=lambda key: key == "h")
    blocks.fill(table)
    for key, value in changes:
        if value == "save":
            next(blocks.encode(), None)  # one that is interrupted
            continue
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
        blocks.changed.add(key)
    for _ in blocks.encode():
        pass
    assert document_of(blocks) == table
    assert set(blocks._place) == set(table)


def test_the_first_block_says_nothing_that_the_others_do_not_know() -> None:
    table = {f"k{number}": 0 for number in range(5000)}
    blocks: LineBlocks[str] = LineBlocks(table.get, is_first=lambda key: key == "first")
    table["first"] = 0
    blocks.fill(table)
    count = 0
    for _ in blocks.encode():
        # What "first" counts has happened to another entry before.
        count += 1
        table["k4999"] = count
        blocks.changed.add("k4999")
        table["first"] = count
        blocks.changed.add("first")
    found = document_of(blocks)
    assert isinstance(found["first"], int) and isinstance(found["k4999"], int)
    assert found["first"] <= found["k4999"] and count > 300


def test_nor_does_it_where_one_save_ends_while_another_takes_changes_up() -> None:
    table = dict.fromkeys(range(2000), 0)
    blocks: LineBlocks[int] = LineBlocks(table.get, is_first=lambda key: key == 0)
    blocks.fill(table)
    one = blocks.encode()
    for _ in range(len(table) // 16 - 1):
        next(one)  # it is about to end
    table.update(dict.fromkeys(table, 1))
    blocks.changed.update(table)
    assert blocks.changed.copy().pop() == 0, "numbers leave a set in their order"
    another = blocks.encode()
    next(another)
    for _ in one:
        pass
    found: dict[str, int] = document_of(blocks)  # type: ignore[arg-type, assignment]
    assert found["0"] <= min(found.values())
    for _ in another:
        pass
    assert set(document_of(blocks).values()) == {1}  # type: ignore[arg-type]


def test_a_save_takes_steps_for_what_has_changed_however_large_the_table_is() -> None:
    steps = []
    for size in (1000, 20_000):
        table = {f"k{number}": 0 for number in range(size)}
        blocks: LineBlocks[str] = LineBlocks(table.get)
        blocks.fill(table)
        assert sum(1 for _ in blocks.encode()) >= size // 16
        blocks.changed.update(f"k{number}" for number in range(0, 320, 32))
        steps.append(sum(1 for _ in blocks.encode()))
    assert steps == [10, 10]


def test_parts_stand_apart_and_leave_nothing_behind() -> None:
    table = {("T", "g"): 1, ("T", "h"): 2, ("U", "g"): 3}
    blocks: LineBlocks[tuple[str, str]] = LineBlocks(
        table.get,
        lambda key, value: line(key[1], value),
        lambda key: key[0],
        around=lambda part: (f'"{part}": {{', "}"),
    )
    blocks.fill(table)
    for _ in blocks.encode():
        pass
    assert members(blocks) == {"T": {"g": 1, "h": 2}, "U": {"g": 3}}
    table.clear()
    blocks.changed.update([("T", "g"), ("T", "h"), ("U", "g")])
    for _ in blocks.encode():
        pass
    assert members(blocks) == {}
    assert (blocks._texts, blocks._place, blocks._blocks, blocks._newest) == ({}, {}, {}, {})


def test_a_part_may_become_large_and_small_again() -> None:
    table = {("T", str(number)): number for number in range(40)} | {("U", "g"): 3}
    blocks: LineBlocks[tuple[str, str]] = LineBlocks(
        table.get,
        lambda key, value: line(key[1], value),
        lambda key: key[0],
        around=lambda part: (f'"{part}": {{', "}"),
    )
    blocks.fill(table)
    list(blocks.encode())
    assert members(blocks) == {"U": {"g": 3}, "T": {str(number): number for number in range(40)}}
    for number in range(1, 40):
        del table["T", str(number)]
        blocks.changed.add(("T", str(number)))
    del table["U", "g"]
    blocks.changed.add(("U", "g"))
    list(blocks.encode())
    assert members(blocks) == {"T": {"0": 0}}


def members(blocks: LineBlocks[tuple[str, str]]) -> object:
    """Return the object that a file with these parts holds."""
    document = json.loads(b"".join(pieces(contents_of({"table": blocks.members()}))))
    return document["table"]


def test_a_member_that_is_encoded_already_is_taken_as_it_is() -> None:
    contents = contents_of({"b": {"x": 1}, "a": Encoded(["[", encode(1), "]"]), "c": {}})
    assert json.loads(b"".join(pieces(contents))) == {"a": [1], "b": {"x": 1}, "c": {}}


def test_a_long_text_is_joined_in_pieces() -> None:
    table = {f"k{number}": "x" * 100 for number in range(5000)}
    found = list(pieces(contents_of({"table": table})))
    assert max(map(len, found)) < 70_000 and len(found) > 5
    assert json.loads(b"".join(found)) == {"table": table}
