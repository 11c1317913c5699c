"""ASYNC_FLUSH by its defaults loses at most the last half second, however little is written."""

from __future__ import annotations

import random

from gantry.store.settings import Flush
from testkit.ledger import LogLedger
from testkit.simdisk import SimDisk
from testkit.storeplay import StorePlay, inspect, lives_on, read_log, revived

_LIVES = 40
_TICK_MS = 50  # the period of the broker's job
_PROMISED_MS = 500


def _age_of_the_oldest_loss(seed: int) -> int:
    """One life of small messages at random moments, and a cut; milliseconds, 0 when nothing was lost."""
    rng = random.Random(seed)
    play = StorePlay(SimDisk(seed), LogLedger(), Flush.ASYNC)
    play.open()
    written_ms: list[int] = []
    for _ in range(rng.randint(1, 60)):
        quiet = rng.randint(1, _TICK_MS - 1)
        play.clock.advance(quiet)
        if rng.random() < 0.3:
            written_ms.append(play.clock.now_ms())
            play.append(1, body_bytes=12)  # takes a millisecond
            quiet += 1
        assert play.store is not None
        play.clock.advance(_TICK_MS - quiet)
        play.store.tick(play.clock.now_ms())
    play.clock.advance(rng.randint(0, _TICK_MS - 1))
    cut_ms = play.clock.now_ms()
    after = revived(play, play.disk.crash(rng), play.ledger)
    inspect(after)
    found = len(read_log(after.disk, after.settings.segment_bytes).kept)
    after.close()
    lives_on(after, rng)
    return cut_ms - written_ms[found] if found < len(written_ms) else 0


def test_a_power_cut_takes_no_message_that_is_older_than_half_a_second() -> None:
    ages = {seed: _age_of_the_oldest_loss(seed) for seed in range(_LIVES)}
    worst = max(ages, key=ages.__getitem__)
    assert 0 < ages[worst] <= _PROMISED_MS, f"seed {worst}: a message of {ages[worst]} ms is gone"
