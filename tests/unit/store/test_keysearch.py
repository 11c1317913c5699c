from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gantry
from gantry.leaves import keys, records
from gantry.store import keysearch
from gantry.store.coldrange import ColdRange
from gantry.store.disk import File
from gantry.store.indexfile import WALKED_AT_ONCE, IndexFile
from gantry.store.keysearch import KeyHits, KeyQuestion, drive, records_with, resolved, search, searched
from gantry.store.store import Store
from testkit.smallstore import message, opened, small

COUNT = 1000
# Only these may follow a chain of the index: both give way.
WALKERS = {"store/keysearch.py", "store/reading.py", "transaction/recovery.py"}


def chained(folder: Path, **changes: object) -> Store:
    """A store with one slot: every key stands in one chain of COUNT other messages."""
    store = opened(small(folder, index_slots=1, index_entries=5000, segment_bytes=1 << 20, **changes))
    store.append([message(keys="wanted", body=b"first")])
    store.append([message(keys=f"k{number}", body=b"x") for number in range(COUNT)])
    return store


def index_all(store: Store) -> None:
    for now_ms in range(0, 400_000, 2000):
        store.tick(now_ms)
        store._parts.clock._machine.advance(1000)  # type: ignore[attr-defined]


def steps_of(store: Store, key: str = "wanted") -> tuple[int, KeyHits]:
    steps, count = search(store, KeyQuestion("orders", key)), 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


def test_a_search_gives_way_after_every_few_entries(tmp_path: Path) -> None:
    store = chained(tmp_path)
    index_all(store)
    count, found = steps_of(store)
    assert len(found.places) == 1 and not found.is_cut
    assert count >= COUNT // WALKED_AT_ONCE


def test_a_search_ends_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keysearch, "STEPS_MAX", 5)
    store = chained(tmp_path)
    index_all(store)
    assert steps_of(store) == (4, KeyHits([], True))


async def test_the_three_ways_to_search_find_the_same(tmp_path: Path) -> None:
    store = chained(tmp_path)
    index_all(store)
    question = KeyQuestion("orders", "wanted")
    found, is_cut = await searched(records_with(store, question))
    assert [bytes(record.body) for record in found] == [b"first"] and not is_cut
    later = resolved(search(store, question), lambda one: one)
    assert not isinstance(later, KeyHits) and len((await later).places) == 1
    driven: list[KeyHits] = []
    drive(search(store, question), driven.append)
    assert not driven, "others have the loop in between"
    while not driven:
        await searched(keysearch.warm(store, []))
        await keysearch._waited(None)
    assert len(driven[0].places) == 1
    newest: list[KeyHits] = []
    drive(search(store, KeyQuestion("orders", f"k{COUNT - 1}"), 1), newest.append)
    assert len(newest[0].places) == 1, "found at once, so answered at once"


def test_a_page_of_the_index_that_is_not_in_memory_is_read_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = chained(tmp_path)
    index_all(store)
    cold: set[int] = set()
    touched: list[int] = []

    def cold_range(file: File, memory: object, start: int, size: int) -> ColdRange | None:
        return None if start in cold else ColdRange(file, start, start + size)

    entry = IndexFile._entry

    def watched(self: IndexFile, number: int) -> tuple[int, int, int, int]:
        touched.append(self._entries_at + number * keys.ENTRY_BYTES)
        return entry(self, number)

    monkeypatch.setattr("gantry.store.indexfile.cold_range", cold_range)
    monkeypatch.setattr(IndexFile, "_entry", watched)
    for hit in store.reader.walk("orders", "k999", 0, 1 << 60):
        if isinstance(hit, ColdRange):
            assert hit.start not in touched, "first read, then looked at"
            cold.add(hit.start)
        elif isinstance(hit, int):
            break
    assert touched and set(touched) <= cold


def test_a_record_has_one_entry_for_each_hash_and_not_more_than_the_bound() -> None:
    def entry(words: str) -> records.Entry:
        return records.Entry(0, 100, "orders", 0, 0, 0, 5, 0, 0, b"id", words.encode(), b"")

    many = " ".join(f"w{number}" for number in range(3000))
    for words, count in (("a " * 1000, 2), ("id", 1), ("Aa BB", 2), (many, 512)):
        assert len(keys.hashed([entry(words), entry(words)])) == 2 * count * keys.FOUND_BYTES, words[:20]


def test_nobody_else_follows_a_chain_of_the_index() -> None:
    root = Path(gantry.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr == "walk":
                owner = ast.unparse(node.value)
                if owner.endswith(("reader", "_index", "index")):
                    found.add(str(path.relative_to(root)))
    assert found == WALKERS
