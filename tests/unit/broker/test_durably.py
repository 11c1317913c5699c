"""Who waits for the disk waits for what was asked before, not for what others ask meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gantry.broker.durably import Durably


@dataclass(eq=False)
class Writer:
    asked: int = 0
    kept: int = 0


async def test_only_what_was_asked_before_is_waited_for() -> None:
    table, deletions, durably = Writer(), Writer(), Durably(20.0)
    durably.watch(table)
    durably.watch(deletions)
    assert await durably.caught_up()
    table.asked = deletions.asked = 1
    waiting = asyncio.ensure_future(durably.caught_up())
    await asyncio.sleep(0)
    table.asked = 7
    table.kept = 1
    durably.look()
    await asyncio.sleep(0)
    assert not waiting.done(), "the gravestone is missing"
    deletions.kept = 1
    durably.look()
    assert await waiting
    assert not durably._waiting


async def test_a_copy_that_is_late_is_named_and_no_disk_that_is_well() -> None:
    table, role, durably = Writer(), Writer(), Durably(0.01)
    durably.watch(table)
    durably.watch(role, lambda number: f"slave {number}")
    role.asked = 7
    assert await durably.lacking() == "slave 7"
    role.kept = 7
    durably.look()
    assert not await durably.lacking()


async def test_a_disk_that_takes_nothing_is_not_waited_for_for_ever() -> None:
    table, durably = Writer(asked=1), Durably(0.01)
    durably.watch(table)
    assert not await durably.caught_up()
    assert await durably.lacking() == "the disk of this broker"
    assert not durably._waiting, "who was told that it is late waits no more"
    table.kept = 1
    durably.look()
    assert await durably.caught_up()
