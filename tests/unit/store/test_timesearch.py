"""Searches by time find what a bisection finds, and the loop reads no record that is not in memory."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from gantry.store.background import InlineBackground
from gantry.store.keysearch import searched
from gantry.store.opening import open_store
from gantry.store.store import Store
from gantry.store.timesearch import offset_by_time, store_time
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.smallstore import message, small

ROOT = Path(__file__).resolve().parents[3] / "broker/src/gantry"
# These have brought the record in themselves.
READ_AT_ONCE = {"metadata/starts.py", "pop/revive.py"}


class Cold:
    """A store of which no record is in memory until the cold reader has read it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = SimClock()
        self.store = open_store(small("/s"), SimDisk(), clock, InlineBackground())
        self.times = []
        for number in range(40):
            clock.advance(7 if number % 3 else 0)
            self.store.append([message()])
            self.times.append(clock.now_ms())
        self.store.confirmed.advance(self.store.written.offset)
        self.brought: list[tuple[int, int]] = []
        self.on_loop: list[tuple[int, int]] = []
        stored_ms = self.store.reader.stored_ms

        def read(entry: tuple[int, int, int]) -> int | None:
            if entry[:2] not in self.brought:
                self.on_loop.append(entry[:2])
            return stored_ms(entry)

        def bring_in(places: list[tuple[int, int]], done: Callable[[], None]) -> None:
            self.brought += places
            done()

        monkeypatch.setattr(self.store.reader, "is_cold", lambda places: places[0] not in self.brought)
        monkeypatch.setattr(self.store.reader, "stored_ms", read)
        monkeypatch.setattr(self.store, "bring_in", bring_in)


def plainly(store: Store, at_ms: int, upper: bool) -> int:
    return store.reader.offset_by_time("orders", 0, at_ms, upper)


@pytest.mark.parametrize("upper", [False, True])
async def test_a_search_by_time_finds_the_same_and_reads_nothing_on_the_loop(
    upper: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Cold(monkeypatch)
    for at_ms in sorted({*play.times, play.times[0] - 1, play.times[-1] + 1, play.times[20] + 1}):
        play.brought.clear()
        found = await searched(offset_by_time(play.store, "orders", 0, at_ms, upper))
        assert play.on_loop == [], "each record was brought in before"
        assert 0 < len(play.brought) == len(set(play.brought)) <= 7, "no record is brought in twice"
        assert found == plainly(play.store, at_ms, upper)
        play.on_loop.clear()
    assert await searched(offset_by_time(play.store, "nothing", 0, 5)) == 0


async def test_a_store_time_is_read_after_its_record_was_brought_in(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Cold(monkeypatch)
    assert [await searched(store_time(play.store, "orders", 0, one)) for one in (0, 39, 40)] == [
        play.times[0],
        play.times[39],
        None,
    ]
    assert play.on_loop == [] and len(play.brought) == 2
    assert await searched(store_time(play.store, "nothing", 0, 0)) is None


def test_requests_search_by_time_in_steps_only() -> None:
    found = set()
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ("store_time", "offset_by_time", "stored_ms"):
                owner = ast.unparse(node.value)
                if owner.endswith("reader") and not name.startswith("store/"):
                    found.add(name)
    assert found == READ_AT_ONCE
