"""Delayed messages against a table, over lives, clock jumps and power cuts: none early, none twice, none lost.

The table knows of each message when it may be seen: a time by the wall clock, a level by the time that has passed (when
the clock is set forwards, that counts as time).
Under SYNC_FLUSH: what was acknowledged is kept, what was seen stays, and nothing is seen twice.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from gantry.schedule.rules import DelayRules
from gantry.store.settings import Flush
from testkit.delayplay import DelayPlay

LEVELS_MS = (100, 700, 3_000)
_KINDS = st.one_of(
    st.tuples(st.just("level"), st.integers(1, 3)),
    st.tuples(st.just("time"), st.integers(-50, 9_000)),
    st.tuples(st.just("pass"), st.integers(1, 100)),
    st.tuples(st.just("tick"), st.integers(0, 1)),
    st.tuples(st.just("flush"), st.integers(1, 3)),
    st.tuples(st.just("step"), st.integers(1, 3)),
    st.tuples(st.just("jump"), st.integers(-5_000, 5_000)),
    st.tuples(st.just("recall"), st.integers(0, 50)),
    st.tuples(st.just("retime"), st.integers(0, 50)),
    st.tuples(st.just("retime"), st.integers(0, 50)),
    st.tuples(st.just("old handle"), st.integers(0, 50)),
    st.tuples(st.just("stop"), st.integers(0, 2)),
)


@dataclass
class Sent:
    """What is known of a message; `is_kept` when the broker said so."""

    due_ms: int  # by the wall clock; 0 for a level
    passed_ms: float  # by the monotonic clock; 0 for a time
    handle: str = ""
    is_kept: bool = False
    is_doubtful: bool = False  # not acknowledged when the power went
    is_recalled: bool = False
    former: list[str] = field(default_factory=list)  # handles of times that were changed


@dataclass
class Model:
    """The table beside the broker."""

    play: DelayPlay
    sent: dict[bytes, Sent] = field(default_factory=dict)
    seen: set[bytes] = field(default_factory=set)
    ahead_ms: int = 0  # by which the wall clock was set forwards, all together
    latest_ms: int = 0  # that the wall clock ever was: what it was when a message was delivered cannot be seen

    def send(self, kind: str, number: int) -> None:
        play, body = self.play, b"m%d" % len(self.sent)
        now_ms, now_s = play.clock.now_ms(), play.clock.monotonic()
        if kind == "level":
            self.sent[body] = Sent(0, now_s * 1000 + self.ahead_ms + LEVELS_MS[number - 1])
            answer = play.send(body, UNIQ_KEY=body.decode(), DELAY=str(number))
        else:
            self.sent[body] = Sent(now_ms + number, 0)
            answer = play.send(body, UNIQ_KEY=body.decode(), TIMER_DELIVER_MS=str(now_ms + number))
        self.sent[body].handle = answer.handle
        self.sent[body].is_kept = answer.code == 0

    def flush(self) -> None:
        self.play.flush()
        self.acknowledged()

    def acknowledged(self) -> None:
        """What waited for the disk has it."""
        for one in self.sent.values():
            one.is_kept = not one.is_doubtful

    def look(self) -> None:
        """What consumers can see now."""
        visible = self.play.visible()
        self.latest_ms = max(self.latest_ms, self.play.clock.now_ms())
        assert len(visible) == len(set(visible)), "twice"
        assert self.seen <= set(visible), "what was seen is gone"
        for body in set(visible) - self.seen:
            one = self.sent[body]
            assert not one.is_recalled, "recalled, and seen all the same"
            assert one.due_ms <= self.latest_ms, "early by the wall clock"
            passed_ms = self.play.clock.monotonic() * 1000 + self.ahead_ms
            assert one.passed_ms <= passed_ms + 0.001, "early by the time that passed"
        self.seen = set(visible)

    def stop(self, how: int, rng: random.Random) -> None:
        if how == 0:
            self.play.reopen()
            self.acknowledged()
        elif how == 1:
            self.play.kill()
        else:
            for one in self.sent.values():
                one.is_doubtful = not one.is_kept
            self.play.crash(rng)

    def recall(self, number: int) -> None:
        pending = [(body, one) for body, one in self.sent.items() if one.is_kept and not one.is_recalled]
        if not pending:
            return
        body, one = pending[number % len(pending)]
        if one.handle:
            answer = self.play.ask(370, topic="orders", recallHandle=one.handle)
        else:
            answer = self.play.ask(24012, id=body.decode(), operator="me")
        if answer.code == 0:
            assert body not in self.seen
            one.is_recalled = True
        self.acknowledged()  # asking flushed


    def retime(self, number: int) -> None:
        """Give a message that waits a time up to some seconds earlier or later, perhaps the same or none."""
        now_ms = self.play.clock.now_ms()
        waiting = [one for one in self.sent.values() if one.is_kept and one.handle and one.due_ms > now_ms]
        if not waiting:
            return
        one = waiting[number % len(waiting)]
        delay_ms = max(0, (one.due_ms - now_ms) * (number % 5) // 2)
        answer = self.play.ask(24044, topic="orders", recallHandle=one.handle, delayMs=delay_ms)
        self.acknowledged()
        if answer.code == 0:
            one.former.append(one.handle)
            one.handle, one.due_ms = answer.ext["recallHandle"], now_ms + delay_ms
        elif answer.code != 17:  # the topic is made again by the first delivery after a kill
            assert one.is_recalled or one.due_ms <= self.latest_ms, "not delivered, and refused"

    def use_old_handle(self, number: int) -> None:
        former = [handle for one in self.sent.values() for handle in one.former]
        if former:
            handle = former[number % len(former)]
            code, ext = (370, {}) if number % 2 else (24044, {"delayMs": 1_000})
            assert self.play.ask(code, topic="orders", recallHandle=handle, **ext).code in (604, 17)
            self.acknowledged()


@settings(max_examples=30, deadline=None)
@given(st.lists(_KINDS, max_size=50), st.randoms(use_true_random=False), st.sampled_from([Flush.SYNC, Flush.ASYNC]))
def test_none_is_early_none_comes_twice_and_none_is_lost(
    steps: list[tuple[str, int]], rng: random.Random, flush: Flush
) -> None:
    model = Model(DelayPlay(flush, DelayRules(levels_ms=LEVELS_MS)))
    play = model.play
    for kind, number in steps:
        if kind in ("level", "time"):
            model.send(kind, number)
        elif kind == "pass":
            play.pass_ms(10 * number)
        elif kind == "tick":
            play.tick()
        elif kind == "flush":
            model.flush()
        elif kind == "step":
            play.background.step()
        elif kind == "jump":
            play.clock.jump(number)
            model.ahead_ms += max(number, 0)
        elif kind == "recall":
            model.recall(number)
        elif kind == "retime":
            model.retime(number)
        elif kind == "old handle":
            model.use_old_handle(number)
        elif kind == "stop" and (flush is Flush.SYNC or number < 2):
            model.stop(number, rng)
        model.look()
    for _ in range(600):
        play.clock.advance(500)
        play.deliver()
        play.flush()
    model.look()
    kept = {body for body, one in model.sent.items() if one.is_kept and not one.is_recalled}
    assert kept <= model.seen, "acknowledged, and never seen"
