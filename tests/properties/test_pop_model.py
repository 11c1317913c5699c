"""Popped messages against a table, over lives, clock jumps, power cuts and changes of the master.

    lost       a message that was stored, or popped, and not acknowledged is popped sooner or later
    twice      one whose acknowledgement was answered is never popped again
    handles    of all handles of a message that were given out, at most the newest is valid
    early      a popped message does not come again before its time is over

Under SYNC_FLUSH the power may go; a process may be killed, and its slave may lead, under every policy.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from gantry.leaves.frames import Command
from gantry.store.settings import Flush
from testkit.popgroupplay import PopGroup
from testkit.popplay import (
    Popped,
    ack_request,
    batch_ack_request,
    change_request,
    changed,
    lease_of,
    pop_request,
    popped,
)

_STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 6)),
    st.tuples(st.just("pop"), st.integers(1, 8)),
    st.tuples(st.just("pop"), st.integers(1, 8)),
    st.tuples(st.just("ack"), st.integers(0, 50)),
    st.tuples(st.just("batch"), st.integers(1, 10)),
    st.tuples(st.just("change"), st.integers(0, 50)),
    st.tuples(st.just("old ack"), st.integers(0, 50)),
    st.tuples(st.just("pass"), st.integers(1, 200)),
    st.tuples(st.just("tick"), st.integers(0, 1)),
    st.tuples(st.just("step"), st.integers(1, 3)),
    st.tuples(st.just("jump"), st.integers(-3_000, 3_000)),
    st.tuples(st.just("stop"), st.integers(0, 3)),
    st.tuples(st.just("lead"), st.integers(0, 2)),
    st.tuples(st.just("tell"), st.integers(0, 1)),
)


@dataclass
class Message:
    """What is known of one message."""

    newest: Popped | None = None
    older: list[Popped] = field(default_factory=list)
    is_kept: bool = False
    is_done: bool = False  # its acknowledgement was answered
    is_doubtful: bool = False  # it was acknowledged or changed, and not answered
    until_ms: float = 0  # not visible before, by the time that passed


class Model:
    """The table beside the broker."""

    def __init__(self, flush: Flush, rng: random.Random) -> None:
        self.play = PopGroup(flush)
        self.rng = rng
        self.messages: dict[bytes, Message] = {}
        self.waiting: dict[int, tuple[str, list[bytes], Command, float]] = {}
        self.unsent: set[bytes] = set()
        self.ahead_ms = 0

    def now_ms(self) -> float:
        return self.play.clock.monotonic() * 1000 + self.ahead_ms

    def send(self, count: int) -> None:
        for _ in range(count):
            body = b"m%d" % len(self.messages)
            sent = self.play.send(body, queue_id=self.rng.randrange(2))
            self.messages[body] = Message(is_kept=sent.code == 0)
            self.waiting[int(sent.key.removeprefix("K"))] = "send", [body], Command(0), 0.0

    def give(self, kind: str, bodies: list[bytes], command: Command) -> None:
        self.waiting[self.play.give(command)] = kind, bodies, command, self.now_ms()
        for body in bodies:
            self.messages[body].is_doubtful = True
        if self.rng.random() < 0.7:
            self.play.turn()
        if self.rng.random() < 0.7:
            self.play.flush()
        self.hear()

    def hear(self) -> None:
        """Take the answers that have come."""
        for reply in self.play.connection.take():
            self.take(reply)

    def take(self, reply: Command) -> None:
        kind, bodies, command, since_ms = self.waiting.pop(reply.opaque, ("", [], Command(0), 0.0))
        if kind == "pop":
            assert reply.code in (0, 210, 17), reply  # 17: the power took the first message, and with it the topic
            if reply.code == 0:
                self.came(popped(reply), int(command.ext["invisibleTime"]), since_ms)
        elif kind == "send":
            self.messages[bodies[0]].is_kept |= reply.code == 0
        elif kind:
            self.answered(kind, bodies, reply)

    def came(self, found: list[Popped], invisible_ms: int, since_ms: float) -> None:
        for one in found:
            message = self.messages[one.body]
            assert not message.is_done, f"{one.body!r} was acknowledged and came again"
            assert message.until_ms <= self.now_ms() + 0.001, f"{one.body!r} came again before its time was over"
            if message.newest is not None:
                message.older.append(message.newest)
            message.newest = one
            message.is_kept = True
            message.until_ms = since_ms + invisible_ms

    def answered(self, kind: str, bodies: list[bytes], reply: Command) -> None:
        if kind == "change":
            message = self.messages[bodies[0]]
            message.is_doubtful = message.is_done
            message.until_ms = 0
            if reply.code == 0:
                assert message.newest is not None
                message.older.append(message.newest)
                message.newest = changed(message.newest, reply)
            return
        assert reply.code == 0
        for number, body in enumerate(bodies):
            message = self.messages[body]
            message.is_doubtful = False
            if kind == "batch":
                message.is_done |= not self.is_stale(number, bodies, reply)
            else:
                message.is_done |= reply.ext["gantryVerdict"] != "stale"

    def is_stale(self, number: int, bodies: list[bytes], reply: Command) -> bool:
        """Whether the answer to a batch says that this one's handle was not valid."""
        named = [one for body in bodies if (one := self.messages[body].newest) is not None]
        leases = list(dict.fromkeys(lease_of(one) for one in named))
        stale = json.loads(reply.body)["stale"] if reply.body else []
        return [leases.index(lease_of(named[number])), named[number].offset] in stale

    def named(self, number: int) -> tuple[bytes, Popped] | None:
        known = [
            (body, one.newest) for body, one in self.messages.items() if one.newest is not None and not one.is_doubtful
        ]
        return known[number % len(known)] if known else None

    def old_ack(self, number: int) -> None:
        """A handle that is not the newest one changes nothing."""
        known = [one for message in self.messages.values() if not message.is_doubtful for one in message.older]
        if known:
            opaque = self.play.give(ack_request(known[number % len(known)]))
            self.play.turn()
            self.play.flush()
            for reply in self.play.connection.take():
                if reply.opaque == opaque:
                    assert reply.code == 0 and reply.ext["gantryVerdict"] != "open", "an old handle was valid"
                self.take(reply)

    def stop(self, how: int) -> None:
        if how == 0:
            self.play.turn()
            self.play.flush()
            self.hear()
            self.play.reopen()
        elif how == 1 or self.play.settings.flush is Flush.ASYNC:
            self.play.kill()
        else:
            self.play.crash(self.rng)
        self.waiting.clear()
        for message in self.messages.values():
            message.until_ms = 0

    def lead(self, how: int) -> None:
        """The slave leads: in order, or because the master is gone."""
        if how == 0:
            self.play.turn()
            self.play.flush()
            self.hear()
            self.play.hand_over()
        else:
            self.play.fail_over(self.rng)
        self.waiting.clear()

    def do(self, kind: str, number: int) -> None:
        play = self.play
        if kind == "send":
            self.send(number)
        elif kind == "pop":
            self.give("pop", [], pop_request(number, self.rng.choice([100, 400, 1500])))
        elif kind in ("ack", "change"):
            one = self.named(number)
            if one is not None:
                request = ack_request(one[1]) if kind == "ack" else change_request(one[1], 20 * number)
                self.give(kind, [one[0]], request)
        elif kind == "batch":
            known = [(body, one.newest) for body, one in self.messages.items() if one.newest and not one.is_doubtful]
            some = self.rng.sample(known, min(number, len(known)))
            if some:
                self.give("batch", [body for body, _ in some], batch_ack_request([one for _, one in some]))
        elif kind == "old ack":
            self.old_ack(number)
        elif kind == "pass":
            play.pass_ms(10 * number)
            self.hear()
        elif kind == "tick":
            play.tick()
        elif kind == "step":
            play.background.step()
            self.hear()
        elif kind == "jump":
            play.clock.jump(number)
            self.ahead_ms += max(number, 0)
        elif kind == "stop":
            self.stop(number)
        elif kind == "lead":
            self.lead(number)
        elif kind == "tell":
            play.tell()

    def finish(self) -> None:
        """Acknowledge what comes until nothing comes any more: then nothing was lost."""
        play = self.play
        play.turn()
        play.flush()
        self.hear()
        for _ in range(100):
            play.clock.jump(5_000)
            self.ahead_ms += 5_000
            play.pass_ms(1_000)
            play.flush()
            reply = play.ask_now(pop_request(32, 60_000))
            if reply.code != 0 and not play.pops.service.book.open:
                break
            if reply.code == 0:
                found = popped(reply)
                self.came(found, 60_000, self.now_ms())
                for one in found:
                    self.messages[one.body].is_done = True
                assert not play.ask_now(batch_ack_request(found)).body, "a new handle was not valid"
        lost = [body for body, one in self.messages.items() if one.is_kept and not one.is_done and not one.is_doubtful]
        assert not lost, f"lost: {lost}"


@settings(max_examples=120, deadline=None)
@given(st.lists(_STEPS, max_size=60), st.randoms(use_true_random=False), st.sampled_from([Flush.SYNC, Flush.ASYNC]))
def test_none_is_lost_none_comes_after_its_acknowledgement_and_one_handle_is_valid(
    steps: list[tuple[str, int]], rng: random.Random, flush: Flush
) -> None:
    model = Model(flush, rng)
    model.send(3)
    for kind, number in steps:
        model.do(kind, number)
    model.finish()
