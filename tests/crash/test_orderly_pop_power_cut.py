"""Messages are popped in order, and the power goes: the next life goes on where the handlers were.

A handler writes down what it was given, what its acknowledgements were answered, and until when its batch is its own.
After a cut at any operation, with any subset of unsynced pages kept: what was acknowledged does not come again, nobody
else is given the queue while a handler has it, no message is skipped, and a dead letter is there once.
"""

from __future__ import annotations

import random

import pytest

from gantry.leaves.frames import Command
from gantry.store.settings import Flush
from testkit.orderplay import DLQ, INVISIBLE_MS, OrderPlay
from testkit.popplay import GROUP, TOPIC, Popped, popped
from testkit.simdisk import Faults, PowerCut

_SMALL = {"segment_bytes": 8192, "queue_file_entries": 8, "index_slots": 16, "index_entries": 24}
_TIMES_MAX = 2
_SEEDS = 80
_SEEDS_SLOW = 2000


class Handlers:
    """What the members of a group know of one queue."""

    def __init__(self, play: OrderPlay, rng: random.Random) -> None:
        self.play = play
        self.rng = rng
        self.sent: list[bytes] = []  # by queue offset
        self._number = 0
        self.batch: list[Popped] = []
        self.visible_ms: dict[int, int] = {}  # by offset in the batch: until when it is ours
        self.asked: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.given: dict[bytes, int] = {}
        self._waiting: dict[int, tuple[str, Popped | None]] = {}

    def live(self, rounds: int) -> None:
        for _ in range(rounds):
            self._do(self.rng.choice(("send", "pop", "pop", "ack", "ack", "ack", "change", "wait", "tick")))
            for _ in range(self.rng.randint(0, 4)):
                self.play.background.step()
            self.listen()

    def _do(self, what: str) -> None:
        play, rng = self.play, self.rng
        if what == "send":
            self._number += 1
            self.play.message(b"m%d" % self._number)
            self.sent = self.play.bodies(TOPIC)
        elif what == "pop":
            self._waiting[play.pop(rng.randint(1, 4))] = "pop", None
        elif what == "tick":
            play.clock.advance(1100)
            play.tick()
        elif what == "wait":
            play.clock.advance(rng.choice((1, INVISIBLE_MS)))
        elif self.batch:
            one = rng.choice(self.batch)
            if what == "ack":
                self.asked.add(one.body)
                self._waiting[play.ack(one)] = "ack", one
            else:
                # Ours no longer, whether the answer comes or not.
                self.visible_ms[one.offset] = 0
                self._waiting[play.change(one)] = "change", one

    def listen(self) -> None:
        for opaque, reply in self.play.answers().items():
            what, one = self._waiting.pop(opaque)
            if what == "pop" and reply.code == 0:
                self._take(reply)
            elif what == "ack" and one is not None and reply.code == 0 and reply.ext["gantryVerdict"] == "open":
                self.acked.add(one.body)

    def _take(self, reply: Command) -> None:
        found = popped(reply)
        offsets = [one.offset for one in found]
        assert offsets == sorted(set(offsets))
        again = {one.body for one in found} & self.acked
        assert not again, f"acknowledged, and here again: {again}"
        ours = [one for one in self.batch if one.body not in self.asked]
        now_ms = int(reply.ext["popTime"])
        for one in ours:
            assert now_ms >= self.visible_ms[one.offset], f"{one.body} is still ours"
        skipped = set(self.sent[: offsets[0]]) - self.asked - set(self.play.bodies(DLQ))
        assert not skipped, f"passed over: {skipped}"
        self.batch = found
        self.visible_ms = dict.fromkeys(offsets, now_ms + INVISIBLE_MS)
        for one in found:
            self.given[one.body] = self.given.get(one.body, 0) + 1

    def forget_questions(self) -> None:
        """A crash: nobody answers any more, and a message that was being sent may be there."""
        self._waiting.clear()
        self.sent = self.play.bodies(TOPIC)

    def finish(self) -> None:
        """Handle everything that is left, and hold it against what was sent."""
        play, idle = self.play, 0
        while idle < 3:
            play.clock.advance(INVISIBLE_MS)
            play.tick()
            found = self._pop_now()
            idle = 0 if found else idle + 1
            for one in found:
                self.asked.add(one.body)
                self._waiting[play.ack(one)] = "ack", one
            play.flush()
            self.listen()
        dead = play.bodies(DLQ)
        assert len(dead) == len(set(dead)), f"twice a dead letter: {dead}"
        assert set(self.sent) <= self.asked | set(dead), "never handled"
        assert not self.acked & set(dead), "acknowledged, and a dead letter"

    def _pop_now(self) -> list[Popped]:
        before, self.batch = self.batch, []
        opaque = self.play.pop()
        self._waiting[opaque] = "pop", None
        self.play.flush()
        self.batch, found = before, self.batch
        self.listen()
        found, self.batch = self.batch if self.batch is not before else [], self.batch
        return found


def one_life(seed: int, cut_at: int, flush: Flush = Flush.SYNC) -> bool:
    """Live until the cut, look, live on, and finish; whether the cut came."""
    rng = random.Random(seed)
    play = OrderPlay(flush, _TIMES_MAX, **_SMALL)
    handlers = Handlers(play, rng)
    play.disk.faults = faults = Faults(power_cut_at=cut_at)
    try:
        handlers.live(40)
    except PowerCut:
        pass
    play.disk.faults = Faults()
    play.crash(rng)
    handlers.forget_questions()
    handlers.live(10)
    play.flush()
    handlers.listen()
    handlers.finish()
    return faults.fired


def test_a_power_cut_at_every_operation_keeps_the_lock_and_what_was_acknowledged() -> None:
    cut_at = 1
    while one_life(3, cut_at):
        cut_at += 1
    assert cut_at > 40


def _lives(seeds: range) -> None:
    for seed in seeds:
        try:
            one_life(seed, random.Random(seed).randint(1, 150))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_random_cuts() -> None:
    _lives(range(_SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1000 + _SEEDS_SLOW, 100))
def test_two_thousand_random_cuts(first: int) -> None:
    _lives(range(first, first + 100))


def test_a_dead_letter_that_the_cut_took_is_made_by_the_next_start_and_never_twice() -> None:
    taken = made = 0
    for seed in range(120):
        rng = random.Random(seed)
        play = OrderPlay(times_max=1, segment_bytes=1 << 16)
        for body in (b"poison", b"good"):
            play.message(body + b"." * 9000)
        for _ in range(2):
            for one in play.taken(1):
                play.change(one)
            play.flush()
        play.pop(1)  # the batch behind the head and the copy of the head are written, not synced
        play.crash(rng)
        batch, dead = play.parts.orderly.table.get((GROUP, TOPIC, 0)), play.bodies(DLQ)
        taken += batch is not None and batch.committed == 1 and not dead
        made += bool(dead)
        play.tick()
        play.flush()
        if batch is not None and batch.committed == 1:
            assert [body[:6] for body in play.bodies(DLQ)] == [b"poison"], seed
        play.crash(rng)
        play.clock.advance(2 * INVISIBLE_MS)
        assert [one.body[:4] for one in play.taken(1)] == [b"good"]
        play.crash(rng)
        assert [body[:6] for body in play.bodies(DLQ)] == [b"poison"], seed
    assert taken and made, "both halves of the run have to be cut off in some lives"


def test_numbers_of_messages_that_a_cut_took_are_not_taken_for_acknowledged_ones() -> None:
    play = OrderPlay(Flush.ASYNC)
    for number in range(3):
        play.message(b"lost %d" % number)
    for one in play.taken():
        play.ack(one)
    for _ in range(3):
        play.tick()
    lost_end = play.store.written.offset
    play.crash()
    assert play.bodies(TOPIC) == []
    new = [b"new %d" % number + b"." * 1_000 for number in range(3)]
    for body in new:
        play.message(body)
    assert play.store.written.offset > lost_end, "else a start sees that the document is of a longer log"
    play.clock.advance(60_000)
    play.store.tick(play.clock.now_ms())
    play.crash()
    assert [one.body for one in play.taken()] == new


def test_acknowledgements_that_were_saved_later_than_their_records_count_at_the_next_start() -> None:
    play = OrderPlay()
    for number in range(3):
        play.message(b"m%d" % number)
    first, second, _ = play.taken()
    for one in (first, second):
        play.ack(one)
    play.flush()
    assert play.offsets.query(GROUP, TOPIC, 0) == 2
    play.crash()  # before anything was saved
    assert play.offsets.query(GROUP, TOPIC, 0) == 2
    assert play.taken() == []
    play.clock.advance(INVISIBLE_MS)
    assert [one.body for one in play.taken()] == [b"m2"]


def test_pops_and_acknowledgements_in_order_are_answered_when_they_are_on_the_disk() -> None:
    play = OrderPlay()
    play.message(b"m0")
    asked = play.pop()
    assert not play.answers()
    play.flush()
    (one,) = popped(play.answers()[asked])
    asked = play.ack(one)
    assert not play.answers()
    play.flush()
    assert play.answers()[asked].ext["gantryVerdict"] == "open"
