"""Requests that come together share one save, and none is answered before what it is about is durable."""

from __future__ import annotations

import asyncio

from gantry.metadata.savedtogether import SavedTogether


class Table:
    """A table with changes; a save lasts until `disk` is set."""

    def __init__(self) -> None:
        self.changes = 0
        self.saves = 0
        self.is_kept = True
        self.disk = asyncio.Event()
        self.together = SavedTogether(lambda: self.changes, self._save)

    async def _save(self) -> bool:
        self.saves += 1
        await self.disk.wait()
        return self.is_kept

    def change(self) -> asyncio.Future[bool]:
        self.changes += 1
        return asyncio.ensure_future(self.together.saved())


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_those_that_come_together_share_one_save() -> None:
    table = Table()
    waiting = [table.change() for _ in range(100)]
    table.disk.set()
    assert all(await asyncio.gather(*waiting))
    assert table.saves == 1
    assert table.together.is_saved


async def test_a_change_during_a_save_is_part_of_the_next_one() -> None:
    table = Table()
    first = table.change()
    await _turns()
    later = [table.change() for _ in range(10)]
    await _turns()
    assert (table.saves, first.done()) == (1, False)
    table.disk.set()
    assert await first
    assert all(await asyncio.gather(*later))
    assert table.saves == 2


async def test_a_failed_save_fails_all_that_waited_for_it_once_and_is_tried_again_for_the_next() -> None:
    table = Table()
    table.is_kept = False
    table.disk.set()
    assert await asyncio.gather(*(table.change() for _ in range(10))) == [False] * 10
    assert (table.saves, table.together.is_saved) == (1, False)
    table.is_kept = True
    assert await table.together.saved()
    assert table.together.is_saved


async def test_what_was_durable_before_does_not_wait() -> None:
    table = Table()
    table.disk.set()
    assert await table.change()
    table.disk.clear()
    second = table.change()
    await _turns()
    assert await table.together.saved(1), "the first change is durable, whatever comes then"
    assert not second.done()
    table.disk.set()
    assert await second


async def test_a_call_is_made_at_once_or_when_it_is_durable() -> None:
    table = Table()
    called: list[bool] = []
    table.together.then(called.append, table.changes)
    assert called == [True]
    table.changes += 1
    table.together.then(called.append, table.changes)
    table.together.soon()
    await _turns()
    assert called == [True]
    table.disk.set()
    assert await table.together.saved()
    await _turns()
    assert called == [True, True]
    assert table.saves == 1


async def test_what_comes_while_something_is_saved_in_the_background_is_saved_as_well() -> None:
    table = Table()
    table.changes += 1
    table.together.soon()
    await _turns()
    table.changes += 1
    table.together.soon()
    table.disk.set()
    await _turns()
    await _turns()
    assert (table.saves, table.together.is_saved) == (2, True)


async def test_a_background_save_that_fails_is_not_repeated_without_end() -> None:
    table = Table()
    table.is_kept = False
    table.disk.set()
    table.changes += 1
    table.together.soon()
    for _ in range(10):
        await _turns()
    assert table.saves == 1
