"""Random lives, random cuts, random survivors: one seed is one life with up to three power cuts.

`make test` takes the first few hundred seeds, `make test-full` 10 000.  A red seed is replayed by calling
`one_life(seed)`; what it showed gets a test of its own, with the steps that are needed and no chance.
"""

from __future__ import annotations

import random

import pytest

from gantry.store.settings import Flush
from testkit.ledger import LogLedger
from testkit.simdisk import Faults, PowerCut, SimDisk
from testkit.storeplay import StorePlay, inspect, lives_on, perform, random_steps, revived

_SEEDS = 10_000
_SEEDS_EACH_COMMIT = 300
_CHUNK = 250


def one_life(seed: int) -> None:
    """Live, lose power, recover (perhaps losing power again), live on; twice."""
    rng = random.Random(seed)
    play = StorePlay(SimDisk(seed), LogLedger(), rng.choice(list(Flush)), rng.random() < 0.5)
    for _ in range(2):
        _live_until_cut(play, rng)
        play = revived(play, play.disk.crash(rng), play.ledger)
        while rng.random() < 0.4:
            play.disk.faults = Faults(power_cut_at=rng.randint(1, 25))
            try:
                inspect(play)
            except PowerCut:
                pass
            play = revived(play, play.disk.crash(rng), play.ledger)
        lives_on(play, rng)


def _live_until_cut(play: StorePlay, rng: random.Random) -> None:
    play.disk.faults = Faults(power_cut_at=rng.choice((rng.randint(1, 40), rng.randint(1, 200))))
    try:
        perform(play, random_steps(rng, rng.randint(3, 25)))
    except PowerCut:
        pass


def _lives(seeds: range) -> None:
    for seed in seeds:
        try:
            one_life(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_random_power_cuts_lose_nothing_durable() -> None:
    _lives(range(_SEEDS_EACH_COMMIT))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, _SEEDS, _CHUNK))
def test_ten_thousand_random_power_cuts_lose_nothing_durable(first: int) -> None:
    _lives(range(first, first + _CHUNK))
