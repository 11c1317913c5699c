"""HTTP queues against a table, over lives, power cuts and moved clocks.

    lost       a message that lives and was not deleted is received sooner or later, once it is visible
    twice      one that was deleted is never received again, nor is one that was cancelled, nor one whose life is over
    early      neither a leased nor a delayed message is received before its time
    handles    only the newest handle of a message works, for receipts and for delayed messages
    order      a receive gets the smallest priorities that are visible
    numbers    active, inactive and delayed, where no time is just over

Everything is flushed before it is answered, so a power cut takes nothing of what the table knows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from gantry.schedule import handles
from testkit.popplay import Popped
from testkit.queueplay import QUEUE, QueuePlay

LIFE_S = 8
SLACK_S = 0.4  # a lease or a delay that is over is handled so much later at most, in steps of the play
_STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 16)),
    st.tuples(st.just("put"), st.integers(1, 16)),
    st.tuples(st.just("later"), st.integers(1, 60)),
    st.tuples(st.just("take"), st.integers(1, 6)),
    st.tuples(st.just("take"), st.integers(1, 6)),
    st.tuples(st.just("done"), st.integers(0, 50)),
    st.tuples(st.just("change"), st.integers(0, 50)),
    st.tuples(st.just("old"), st.integers(0, 50)),
    st.tuples(st.just("commit"), st.integers(0, 50)),
    st.tuples(st.just("cancel"), st.integers(0, 50)),
    st.tuples(st.just("pass"), st.integers(1, 80)),
    st.tuples(st.just("pass"), st.integers(1, 80)),
    st.tuples(st.just("jump"), st.integers(-8_000, 8_000)),
    st.tuples(st.just("life"), st.sampled_from([4, LIFE_S, 20])),
    st.tuples(st.just("stats"), st.integers(0, 1)),
    st.tuples(st.just("stats"), st.integers(0, 1)),
    st.tuples(st.just("again"), st.integers(0, 9)),
    st.tuples(st.just("stop"), st.integers(0, 2)),
)


@dataclass
class Message:
    """What is known of one message; `until_ms`: when it becomes visible, 0 for one that is."""

    priority: int
    born_ms: int
    until_ms: int = 0
    receipt: Popped | None = None
    handle: str = ""
    is_doubtful: bool = False  # its time is just over: it may be visible, or not yet
    over_from_s: float = 0.0  # since when its time is over, by the monotonic clock; 0: it is not
    was_over: bool = False  # its life was over at some time, so it may be gone


@dataclass
class Model:
    """The table beside the broker."""

    play: QueuePlay
    life_s: int = LIFE_S
    known: dict[bytes, Message] = field(default_factory=dict)
    gone: set[bytes] = field(default_factory=set)
    receipts: list[Popped] = field(default_factory=list)  # that are void
    handles: list[str] = field(default_factory=list)
    number: int = 0

    @property
    def now_ms(self) -> int:
        return self.play.clock.now_ms()

    def is_over(self, one: Message) -> bool:
        return one.born_ms + self.life_s * 1000 <= self.now_ms

    def look(self) -> None:
        """Note whose time is over."""
        for one in self.known.values():
            one.was_over |= self.is_over(one)
            is_time = 0 < one.until_ms <= self.now_ms
            one.is_doubtful |= is_time
            one.over_from_s = (one.over_from_s or self.play.clock.monotonic()) if is_time else 0.0
            if is_time and self.play.clock.monotonic() - one.over_from_s >= SLACK_S:
                self._made_visible(one)

    def _made_visible(self, one: Message) -> None:
        self.receipts += [one.receipt] if one.receipt else []
        self.handles += [one.handle] if one.handle else []
        one.until_ms, one.receipt, one.handle, one.is_doubtful, one.over_from_s = 0, None, "", False, 0.0

    def put(self, priority: int, delay_ms: int = 0) -> None:
        body = b"m%d" % self.number
        self.number += 1
        sent = self.play.put(body, priority, delay_ms)
        assert sent.code == 0 and bool(sent.handle) == bool(delay_ms)
        self.known[body] = Message(priority, self.now_ms, self.now_ms + delay_ms if delay_ms else 0, None, sent.handle)

    def take(self, count: int) -> None:
        visibility_ms = 700 * count
        taken = self.play.take(count, visibility_ms)
        self.look()
        for one in taken:
            assert one.body not in self.gone, "deleted, and received again"
            message = self.known[one.body]
            assert not self.is_over(message), "its life is over"
            assert not message.until_ms or message.is_doubtful, "received before its time"
            assert one.queue_id == message.priority - 1
        priorities = [one.queue_id for one in taken]
        assert priorities == sorted(priorities)
        got = {one.body for one in taken}
        sure = [one for body, one in self.known.items() if body not in got and not one.until_ms and not one.was_over]
        if len(taken) < count:
            assert not sure, "visible, and not received"
        else:
            assert all(one.priority - 1 >= priorities[-1] for one in sure), "a smaller priority waits"
        for one in taken:
            message = self.known[one.body]
            self._made_visible(message)
            message.until_ms, message.receipt = self.now_ms + visibility_ms, one

    def _leased(self, number: int) -> tuple[bytes, Message] | None:
        found = [(body, one) for body, one in self.known.items() if one.receipt]
        return found[number % len(found)] if found else None

    def done(self, number: int) -> None:
        found = self._leased(number)
        if found is None or found[1].receipt is None:
            return
        body, one = found
        assert one.receipt is not None
        verdict = self.play.done(one.receipt)
        if verdict == "open":
            assert not self.is_over(one)
            self.receipts.append(one.receipt)
            del self.known[body]
            self.gone.add(body)
        else:
            assert one.is_doubtful or one.was_over, f"{verdict} for a valid receipt"

    def change(self, number: int) -> None:
        found = self._leased(number)
        if found is None or found[1].receipt is None:
            return
        _, one = found
        assert one.receipt is not None
        newer = self.play.change(one.receipt, 100 * number)
        if newer is None:
            assert one.is_doubtful or one.was_over, "a valid receipt was refused"
            return
        assert not self.is_over(one)
        self.receipts.append(one.receipt)
        one.receipt, one.until_ms, one.is_doubtful = newer, self.now_ms + 100 * number, False
        self.look()

    def use_old(self, number: int) -> None:
        if self.receipts:
            old = self.receipts[number % len(self.receipts)]
            assert self.play.done(old) != "open", "a void receipt was accepted"
        if self.handles:
            assert self.play.commit(self.handles[number % len(self.handles)]) is None, "a void handle was accepted"

    def _delayed(self, number: int) -> tuple[bytes, Message] | None:
        found = [(body, one) for body, one in self.known.items() if one.handle]
        return found[number % len(found)] if found else None

    def commit(self, number: int) -> None:
        found = self._delayed(number)
        if found is None:
            return
        _, one = found
        newer = self.play.commit(one.handle, 300 * number)
        if newer is None:
            assert one.is_doubtful or one.was_over, "a valid handle was refused"
            return
        assert not self.is_over(one)
        self.handles.append(one.handle)
        one.handle, one.until_ms, one.is_doubtful = newer, self.now_ms + 300 * number, False
        assert not newer or handles.decode(newer) is not None
        self.look()

    def cancel(self, number: int) -> None:
        found = self._delayed(number)
        if found is None:
            return
        body, one = found
        if self.play.cancel(one.handle):
            self.handles.append(one.handle)
            del self.known[body]
            self.gone.add(body)
        else:
            assert one.is_doubtful or one.was_over, "a valid handle was refused"

    def stats(self) -> None:
        found = self.play.stats()
        self.look()
        sure = [one for one in self.known.values() if not one.is_doubtful and not self._is_about_over(one)]
        doubtful = len(self.known) - len(sure)
        kinds = (
            sum(not one.until_ms for one in sure),
            sum(one.until_ms > 0 and one.receipt is not None for one in sure),
            sum(one.until_ms > 0 and one.receipt is None for one in sure),
        )
        for count, least in zip(found, kinds, strict=True):
            assert least <= count <= least + doubtful, (found, kinds, doubtful)
        alive = [one for one in self.known.values() if one.born_ms + (self.life_s + 1) * 1000 > self.now_ms]
        assert sum(found) <= len(alive)

    def _is_about_over(self, one: Message) -> bool:
        return one.was_over or one.born_ms + (self.life_s - 1) * 1000 <= self.now_ms

    def make_again(self) -> None:
        self.play.delete()
        self.play.make(self.life_s)
        for one in self.known.values():
            self._made_visible(one)
        self.gone |= self.known.keys()
        self.known.clear()

    def stop(self, how: int, rng: random.Random) -> None:
        if how == 0:
            self.play.reopen()
        elif how == 1:
            self.play.kill()
        else:
            self.play.crash(rng)


@settings(max_examples=60, deadline=None)
@given(st.lists(_STEPS, max_size=60), st.randoms(use_true_random=False))
def test_a_queue_keeps_its_rules(steps: list[tuple[str, int]], rng: random.Random) -> None:
    model = Model(QueuePlay(LIFE_S))
    play = model.play
    for kind, number in steps:
        if kind == "put":
            model.put(number)
        elif kind == "later":
            model.put(number % 16 + 1, 700 * number)
        elif kind in ("take", "done", "change", "commit", "cancel"):
            getattr(model, kind)(number)
        elif kind == "old":
            model.use_old(number)
        elif kind == "pass":
            for _ in range(number):
                play.pass_durably(100)
                model.look()
        elif kind == "jump":
            play.clock.jump(number)
        elif kind == "life":
            model.life_s = number
            play.set_life(number)
        elif kind == "stats":
            model.stats()
        elif kind == "again" and number == 0:
            model.make_again()
        elif kind == "stop":
            model.stop(number, rng)
        model.look()
    play.set_life(86_400)
    model.life_s = 86_400
    kept = {body for body, one in model.known.items() if not one.was_over}
    received: set[bytes] = set()
    for _ in range(40):
        play.pass_durably(3_000, 1_000)
        for one in play.take(16, 600_000):
            assert one.body in model.known and one.body not in received
            received.add(one.body)
            assert play.done(one) == "open"
    assert kept <= received, "lives, and was never received"
    assert play.stats()[1:] == (0, 0) and play.topics.get(QUEUE) is not None
