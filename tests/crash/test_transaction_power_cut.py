"""The power goes at every step of half, local transaction, end, message and op, check: the ledger still agrees.

The ledger is the business's database: a row is written when the half was acknowledged, and says how its transaction
ended.  After the cut the producers answer checks from it.  In the end what consumers see are the committed rows: none
missing, none twice, none of a rolled-back or never acknowledged one.
"""

from __future__ import annotations

import random

import pytest

from gantry.model import names
from gantry.store.settings import Flush
from gantry.transaction.checker import CheckPolicy
from testkit.simdisk import Faults, PowerCut
from testkit.transactionplay import COMMIT, ROLLBACK, Half, TransactionPlay

_RULES = CheckPolicy(immunity_ms=0, checks_max=0, settled_behind_max=3, settled_behind_factor=0, unmarked_bytes_max=500)
_SMALL = {"segment_bytes": 8192, "queue_file_entries": 8, "index_slots": 16, "index_entries": 24}
_PASSES_MAX = 20
_ROUNDS = 6
_SEEDS = 60
_SEEDS_SLOW = 3000


class Business:
    """What the producers' database says, and what they do."""

    def __init__(self, play: TransactionPlay, rng: random.Random) -> None:
        self.play = play
        self.rng = rng
        self.rows: dict[str, int] = {}
        self.number = 0

    def live(self, rounds: int) -> None:
        """Some rounds of everything."""
        play, rng = self.play, self.rng
        play.join()
        for _ in range(rounds):
            halves = [self._half() for _ in range(rng.randint(1, 3))]
            for half in halves:
                if half is not None and rng.random() < 0.7:
                    play.end_later(half, self.rows[half.key])
                if rng.random() < 0.5:
                    play.turn()
                    self._step()
            play.turn()
            self._step()
            if rng.random() < 0.4:
                self._answer()
            if rng.random() < 0.4:
                play.tick()
            if rng.random() < 0.4:
                play.clock.advance(1100)
                play.store.tick(play.clock.now_ms())
                self._step()
            if rng.random() < 0.3:
                play.offsets.file.save_now()

    def settle(self) -> None:
        """Let everything that is open be asked about until nothing is."""
        play = self.play
        play.join()
        for _ in range(_PASSES_MAX):
            play.flush()
            if not play.book.open:
                return
            self._answer()
        raise AssertionError(f"still open: {[half.root for half in play.book.open.values()]}")

    def check(self, is_lossless: bool) -> None:
        """What consumers see is what the database says."""
        seen = [key for _, key in self.play.visible()]
        assert len(set(seen)) == len(seen), f"delivered twice: {sorted(key for key in seen if seen.count(key) > 1)}"
        committed = {key for key, kind in self.rows.items() if kind == COMMIT}
        assert set(seen) <= committed, f"never committed: {set(seen) - committed}"
        if not is_lossless:
            # What the policy lets go may be gone, but not the outcome of a half that is still there.
            kept = {half.unique_key for half in self._halves()}
            committed &= kept
        assert committed <= set(seen), f"missing: {committed - set(seen)}"

    def _halves(self):  # type: ignore[no-untyped-def]
        from gantry.transaction.half import HalfFacts

        for record in self.play.records(names.HALF_TOPIC):
            yield HalfFacts(record.properties, record.queue_offset)

    def _half(self) -> Half | None:
        self.number += 1
        half = self.play.half(b"." * self.rng.choice((10, 700)), key=f"k{self.number}")
        if half.code != 0:
            self.play.flush()
            answered = self.play.answers()
            if not any(code == 0 for code in answered.values()):
                return None
        self.rows[half.key] = self.rng.choice((COMMIT, COMMIT, ROLLBACK))
        return half

    def _answer(self) -> None:
        for question in self.play.run_pass(1):
            self.play.end_later(question.half, self.rows.get(question.key, ROLLBACK), is_check=True)
        self.play.turn()

    def _step(self) -> None:
        for _ in range(self.rng.randint(0, 3)):
            self.play.background.step()


def one_life(seed: int, cut_at: int, flush: Flush) -> bool:
    """Live until the cut, recover, perhaps through more cuts, settle, and look twice; whether the cut came."""
    rng = random.Random(seed)
    play = TransactionPlay(flush, _RULES, **_SMALL)
    business = Business(play, rng)
    play.disk.faults = faults = Faults(power_cut_at=cut_at)
    try:
        business.live(_ROUNDS)
    except PowerCut:
        pass
    _recover(play, rng)
    business.settle()
    business.check(flush is Flush.SYNC)
    play.reopen()
    assert not play.book.open, "what was settled stays so"
    business.live(2)
    business.settle()
    business.check(flush is Flush.SYNC)
    return faults.fired


def _recover(play: TransactionPlay, rng: random.Random) -> None:
    """Boot; the power may go again while it does."""
    disk = play.disk.crash(rng)
    while True:
        play._soon.clear()
        play.producers = []
        play.disk = disk
        disk.faults = Faults(power_cut_at=rng.randint(1, 40)) if rng.random() < 0.4 else Faults()
        try:
            play.open()
            disk.faults = Faults()
            return
        except PowerCut:
            disk = disk.crash(rng)


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_every_operation_leaves_database_and_messages_in_agreement(seed: int) -> None:
    cut_at = 1
    while one_life(seed, cut_at, Flush.SYNC):
        cut_at += 1
    assert cut_at > 50


def _lives(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        try:
            one_life(seed, rng.randint(1, 150), rng.choice(list(Flush)))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_random_cuts_under_both_policies() -> None:
    _lives(range(1000, 1000 + _SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, _SEEDS_SLOW, 100))
def test_three_thousand_random_cuts_under_both_policies(first: int) -> None:
    _lives(range(first, first + 100))
