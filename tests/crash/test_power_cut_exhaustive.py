"""The power goes at every single operation of a short life, and at every operation of the recovery after it.

The life has everything once: topics, batches, rolls over small segments, queue files and index files, flushes,
dispatching, checkpoints, an orderly stop and a new start.  What must hold afterwards is in testkit.storeplay.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest

from gantry.store.settings import Flush
from testkit.ledger import LogLedger
from testkit.simdisk import Faults, PowerCut, SimDisk
from testkit.storeplay import StorePlay, inspect, lives_on, revived

# Of what is unsynced nothing survives, or a throw of the dice decides: by turns, and in the slow tests both and more.
_BY_TURNS = ((None,), (1,))
_MORE_DICE = ((None, 1, 2, 3, 4, 5),)


def short_life(play: StorePlay) -> None:
    play.open()
    play.append(1, 12)
    play.append(3, 200)
    play.tick()
    play.append(4, 1500)
    play.append(3, 1200, together=True)
    play.step(2)
    play.append(2, 900)
    play.tick()
    play.append(4, 1500)
    play.append(1, 40)
    play.append(3, 1500)
    play.close()
    play.open()
    play.append(2, 700)
    play.tick()
    play.append(2, 100)


def _dice(seed: int | None) -> random.Random | None:
    return None if seed is None else random.Random(seed)


def _cut(play: StorePlay, life: Callable[[StorePlay], None], at: int) -> bool:
    """Live until the power goes at this operation; False when it never came to that."""
    play.disk.faults = Faults(power_cut_at=at)
    try:
        life(play)
    except PowerCut:
        return True
    return False


@pytest.mark.parametrize("stepped", [False, True], ids=["at-once", "stepped"])
@pytest.mark.parametrize("flush", list(Flush))
def test_a_power_cut_at_any_operation_loses_nothing_durable(flush: Flush, stepped: bool) -> None:
    _cut_everywhere(flush, stepped, _BY_TURNS)


@pytest.mark.slow
@pytest.mark.parametrize("stepped", [False, True], ids=["at-once", "stepped"])
@pytest.mark.parametrize("flush", list(Flush))
def test_a_power_cut_at_any_operation_loses_nothing_durable_whatever_survives(flush: Flush, stepped: bool) -> None:
    _cut_everywhere(flush, stepped, _MORE_DICE)


def _cut_everywhere(flush: Flush, stepped: bool, turns: tuple[tuple[int | None, ...], ...]) -> None:
    at = 0
    while True:
        at += 1
        play = StorePlay(SimDisk(), LogLedger(), flush, stepped)
        cut = _cut(play, short_life, at)
        for seed in turns[at % len(turns)]:
            after = revived(play, play.disk.crash(_dice(seed)), copy.deepcopy(play.ledger))
            try:
                lives_on(after, random.Random(at))
            except BaseException as error:
                error.add_note(f"power cut at operation {at} ({play.disk.faults.trace[-1]}), dice {seed}")
                raise
        if not cut:
            break
    assert at > 60, f"a short life of {at} operations tests little"


@pytest.mark.parametrize("stepped", [False, True], ids=["at-once", "stepped"])
@pytest.mark.parametrize("flush", [Flush.SYNC, pytest.param(Flush.ASYNC, marks=pytest.mark.slow)])
def test_the_death_of_the_process_at_any_operation_loses_nothing_written(flush: Flush, stepped: bool) -> None:
    at, cut = 0, True
    while cut:
        at += 1
        play = StorePlay(SimDisk(), LogLedger(), flush, stepped)
        cut = _cut(play, short_life, at)
        play.ledger.all_written()
        try:
            lives_on(revived(play, play.disk.restart(), play.ledger), random.Random(at))
        except BaseException as error:
            error.add_note(f"killed at operation {at}")
            raise


@pytest.mark.parametrize("first_cut", [*range(0, 200, 40), 10_000])
def test_recovery_may_itself_be_cut_at_any_operation(first_cut: int) -> None:
    rng = random.Random(first_cut)
    play = StorePlay(SimDisk(), LogLedger(), stepped=first_cut % 80 == 0)
    _cut(play, short_life, first_cut)
    crashed = play.disk.crash(rng)
    at, cut = 0, True
    while cut:
        at += 1
        second = revived(play, crashed.crash(rng), copy.deepcopy(play.ledger))
        cut = _cut(second, lambda play: inspect(play), at)
        # What the second boot had shown to anybody before its power went is safe too: the ledger took it over.
        third = revived(second, second.disk.crash(rng), second.ledger)
        try:
            lives_on(third, rng)
        except BaseException as error:
            error.add_note(f"first cut at {first_cut}, recovery cut at {at}")
            raise
