"""A send-back was answered, then the power goes: the copy is there, because the consumer has let go of the original.

The consumer's book says which messages it let go of.  After a cut at any operation, with any subset of unsynced pages
kept, each of those stands in the retry or dead-letter topic; every other one still stands where it was delivered from,
and nothing stands there that was never sent back.
"""

from __future__ import annotations

import random

import pytest

from gantry.leaves.records import Record
from gantry.store.settings import Flush
from testkit.sendbackplay import DLQ, RETRY, SendBackPlay, said
from testkit.simdisk import Faults, PowerCut

_SMALL = {"segment_bytes": 8192, "queue_file_entries": 8, "index_slots": 16, "index_entries": 24}
_SEEDS = 60
_SEEDS_SLOW = 2000


class Consumer:
    """What one consumer did, as it remembers it."""

    def __init__(self, play: SendBackPlay, rng: random.Random) -> None:
        self.play = play
        self.rng = rng
        self.delivered: dict[str, Record] = {}
        self.asked: set[str] = set()
        self.let_go: set[str] = set()
        self._waiting: dict[int, str] = {}

    def live(self, rounds: int) -> None:
        """Some rounds of failures."""
        for _ in range(rounds):
            record = self.play.message(b"." * self.rng.choice((5, 900)))
            key = said(record)["UNIQ_KEY"]
            self.delivered[key] = record
            if self.rng.random() < 0.8:
                self._send_back(key)
            for _ in range(self.rng.randint(0, 3)):
                self.play.background.step()
            self._listen()
            if self.rng.random() < 0.3:
                self.play.clock.advance(1100)
                self.play.store.tick(self.play.clock.now_ms())

    def check(self) -> None:
        """What it let go of is kept; what is kept was sent back."""
        found = [said(record)["UNIQ_KEY"] for topic in (RETRY, DLQ) for record in self.play.records(topic)]
        assert self.let_go <= set(found), f"lost: {self.let_go - set(found)}"
        assert set(found) <= self.asked, f"never sent back: {set(found) - self.asked}"
        there = {said(record)["UNIQ_KEY"] for record in self.play.records("T")}
        assert set(self.delivered) <= there

    def _send_back(self, key: str) -> None:
        self.asked.add(key)
        level = self.rng.choice((0, 0, 5, -1))
        code = self.play.send_back(self.delivered[key], level)
        assert code in (0, -1)
        if code == 0:
            self.let_go.add(key)
        else:
            self._waiting[self.play.opaque] = key

    def _listen(self) -> None:
        for reply in self.play.connection.take():
            key = self._waiting.pop(reply.opaque)
            if reply.code == 0:
                self.let_go.add(key)


def one_life(seed: int, cut_at: int) -> bool:
    """Live until the cut and look, twice; whether the cut came."""
    rng = random.Random(seed)
    play = SendBackPlay(Flush.SYNC, **_SMALL)
    consumer = Consumer(play, rng)
    play.disk.faults = faults = Faults(power_cut_at=cut_at)
    try:
        consumer.live(10)
    except PowerCut:
        pass
    play.disk.faults = Faults()
    play.crash(rng)
    consumer.check()
    consumer._waiting.clear()
    consumer.live(2)
    play.flush()
    consumer._listen()
    consumer.check()
    return faults.fired


def test_a_power_cut_at_every_operation_loses_nothing_that_was_answered() -> None:
    cut_at = 1
    while one_life(7, cut_at):
        cut_at += 1
    assert cut_at > 30


def _lives(seeds: range) -> None:
    for seed in seeds:
        try:
            one_life(seed, random.Random(seed).randint(1, 80))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_random_cuts() -> None:
    _lives(range(_SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1000 + _SEEDS_SLOW, 100))
def test_two_thousand_random_cuts(first: int) -> None:
    _lives(range(first, first + 100))
