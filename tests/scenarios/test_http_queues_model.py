"""HTTP queues against a model of their rules, while days pass on the clock of broker and server.

A random walk sends, receives, deletes, changes visibilities and retentions, and lets time pass.  The model says what
every call has to answer, which messages are visible, and what the statistics are.  Both clocks are the machine's and
what the test adds, so nothing may depend on the seconds that a step takes: times are hours, and when the end of a
lease, a delay or a life is near, more time passes first.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gantry.clock import SystemClock
from gantry.queues.server import QueueServer, QueueServerSettings
from testkit.mnscalls import MnsCaller, MnsReply
from testkit.movedclock import Hands
from testkit.patience import HANG_S
from testkit.process import GantryProcess

pytestmark = pytest.mark.slow

QUEUE = "model"
_HOUR_S = 3600
_NEAR_S = 600
_STEPS = 70


@dataclass
class Kept:
    """A message as the rules see it; instants in seconds of the moved clock."""

    body: str
    priority: int
    born_s: float
    visible_at: float
    handle: str = ""  # the one that is good until `visible_at`
    old: list[str] = field(default_factory=list)
    received: int = 0
    is_deleted: bool = False


class Model:
    """The queue as the rules have it."""

    def __init__(self, clock: Hands) -> None:
        self.kept: list[Kept] = []
        self.life_s = 48 * _HOUR_S
        self._clock = clock

    @property
    def now_s(self) -> float:
        return self._clock.now_ms / 1000

    def lives(self, one: Kept) -> bool:
        return not one.is_deleted and self.now_s < one.born_s + self.life_s

    def visible(self) -> list[Kept]:
        return [one for one in self.kept if self.lives(one) and one.visible_at <= self.now_s]

    def hidden(self) -> list[Kept]:
        return [one for one in self.kept if self.lives(one) and one.visible_at > self.now_s]

    def is_good(self, one: Kept, handle: str) -> bool:
        return self.lives(one) and one.visible_at > self.now_s and handle == one.handle

    def counts(self) -> tuple[int, int, int]:
        hidden = self.hidden()
        delayed = sum(not one.received for one in hidden)
        return len(self.visible()), len(hidden) - delayed, delayed

    def is_near(self) -> bool:
        """Whether something is about to happen, or has just happened."""
        now_s = self.now_s
        ends = [one.born_s + self.life_s for one in self.kept] + [one.visible_at for one in self.kept if one.handle]
        return any(abs(end - now_s) < _NEAR_S for end in ends)


class Walk:
    """One random walk."""

    def __init__(self, seed: int, mns: MnsCaller, clock: Hands) -> None:
        self.model = Model(clock)
        self.told: list[str] = [f"seed {seed}"]
        self._random = random.Random(seed)
        self._mns = mns
        self._clock = clock

    def run(self) -> None:
        made = self._mns.put(QUEUE, VisibilityTimeout=5 * _HOUR_S, MessageRetentionPeriod=self.model.life_s)
        assert made.status == 201
        steps = [self.send, self.send, self.send, self.receive, self.receive, self.settle, self.settle, self.wait]
        for _ in range(_STEPS):
            self._random.choice([*steps, self.retain])()
            while self.model.is_near():
                self._pass(2 * _NEAR_S)
            self.check()

    def send(self) -> None:
        """Send a message, delayed or not."""
        priority = self._random.choice([1, 2, 8, 16])
        delay_s = self._random.choice([0, 0, 7 * _HOUR_S, 90 * _HOUR_S])
        body = f"m{len(self.model.kept)}"
        sent = self._mns.send(QUEUE, body, Priority=priority, DelaySeconds=delay_s)
        self._tell(f"send {body} p{priority} after {delay_s}", sent)
        assert sent.status == 201 and sent.has("ReceiptHandle") == bool(delay_s), self.told
        now_s = self.model.now_s
        handle = sent.text("ReceiptHandle") if delay_s else ""
        visible_at = now_s + delay_s if delay_s else 0.0
        self.model.kept.append(Kept(body, priority, now_s, visible_at, handle))

    def receive(self) -> None:
        """Receive up to three messages: those of the best priorities."""
        count = self._random.randint(1, 3)
        wanted = sorted(one.priority for one in self.model.visible())[:count]
        found = self._mns.receive(QUEUE, count=count)
        self._tell(f"receive {count}: {found.texts('MessageBody')}", found)
        assert [int(one) for one in found.texts("Priority")] == wanted, self.told
        by_body = {one.body: one for one in self.model.visible()}
        texts = [found.texts(name) for name in ("MessageBody", "ReceiptHandle", "DequeueCount")]
        for body, handle, number in zip(*texts, strict=True):
            one = by_body[body]
            one.received += 1
            assert int(number) == one.received, self.told
            self._renew(one, handle, 5 * _HOUR_S)

    def settle(self) -> None:
        """Delete a message or change its visibility, by a handle of now or of before."""
        known = [one for one in self.model.kept if one.handle or one.old]
        if not known:
            return
        one = self._random.choice(known[-8:])
        handle = self._random.choice([text for text in (one.handle, one.handle, *one.old[-1:]) if text])
        is_good = self.model.is_good(one, handle)
        if self._random.random() < 0.4:
            answer = self._mns.delete(QUEUE, handle)
            self._tell(f"delete {one.body}, good: {is_good}", answer)
            assert (answer.status, answer.code) == ((204, "") if is_good else (404, "MessageNotExist")), self.told
            one.is_deleted |= is_good
            return
        seconds = self._random.choice([2 * _HOUR_S, 9 * _HOUR_S])
        answer = self._mns.change(QUEUE, handle, seconds)
        self._tell(f"change {one.body} to {seconds}, good: {is_good}", answer)
        assert (answer.status, answer.code) == ((200, "") if is_good else (404, "MessageNotExist")), self.told
        if is_good:
            self._renew(one, answer.text("ReceiptHandle"), seconds)

    def wait(self) -> None:
        """Let hours pass."""
        self._pass(self._random.choice([_HOUR_S, 3 * _HOUR_S, 8 * _HOUR_S, 30 * _HOUR_S]))

    def retain(self) -> None:
        """Give all messages a shorter or a longer life, but none to those that have ended: they might come back."""
        now_s = self.model.now_s
        ended = [one for one in self.model.kept if not one.is_deleted and not self.model.lives(one)]
        born_s = max((one.born_s for one in ended), default=0.0)
        self.model.life_s = self._random.choice(
            [hours * _HOUR_S for hours in (24, 48, 200) if born_s + hours * _HOUR_S <= now_s or not ended]
            or [self.model.life_s]
        )
        document = f"<Queue><MessageRetentionPeriod>{self.model.life_s}</MessageRetentionPeriod></Queue>"
        answer = self._mns.call("PUT", f"/queues/{QUEUE}?metaoverride=true", document)
        self._tell(f"life {self.model.life_s}", answer)
        assert answer.status == 204

    def check(self) -> None:
        """Hold what is visible, and the statistics, against the model; both follow within a moment."""
        deadline, pause = time.monotonic() + HANG_S, threading.Event()
        while True:
            looked = self._mns.receive(QUEUE, is_peek=True, count=16)
            counts = self._mns.call("GET", f"/queues/{QUEUE}")
            numbers = tuple(int(counts.text(f"{name}Messages")) for name in ("Active", "Inactive", "Delay"))
            visible = self.model.visible()
            bodies = looked.texts("MessageBody")
            # A peek has at most sixteen.
            are_right = set(bodies) == {one.body for one in visible} or len(visible) > 16
            if are_right and numbers == self.model.counts():
                break
            wanted = sorted(one.body for one in visible), self.model.counts()
            assert time.monotonic() < deadline, (f"seen {bodies} {numbers}, expected {wanted}", self.told)
            pause.wait(0.1)
        priorities = [int(one) for one in looked.texts("Priority")]
        assert priorities == sorted(one.priority for one in visible)[:16], self.told

    def _renew(self, one: Kept, handle: str, seconds: float) -> None:
        if one.handle:
            one.old.append(one.handle)
        assert handle not in one.old, "a handle is made once"
        one.handle, one.visible_at = handle, self.model.now_s + seconds

    def _pass(self, seconds: int) -> None:
        self._clock.add(seconds * 1000)
        self.told.append(f"{seconds} s pass")

    def _tell(self, text: str, answer: MnsReply) -> None:
        self.told.append(f"{text} -> {answer.status} {answer.code}")


class MovedTime:
    """The server's clock; implements `gantry.clock.Clock`."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self.monotonic = SystemClock().monotonic

    def now_ms(self) -> int:
        return self._hands.now_ms


@contextmanager
def served(nameserver: str, clock: Hands) -> Iterator[tuple[str, int]]:
    """A server in a thread of its own, with the moved clock."""
    settings = QueueServerSettings([nameserver], [b"0123456789abcdef"], port=0)
    ready, addresses, ends = threading.Event(), list[tuple[str, int]](), list[object]()

    async def serve() -> None:
        end = asyncio.Event()
        server = QueueServer(settings, end.set, MovedTime(clock))
        await server.start()
        addresses.append(("127.0.0.1", server.port))
        loop = asyncio.get_running_loop()
        ends.append(lambda: loop.call_soon_threadsafe(end.set))
        ready.set()
        await end.wait()
        await server.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(HANG_S), "the server does not start"
        yield addresses[0]
    finally:
        for end in ends:
            assert callable(end)
            end()
        thread.join(HANG_S)


@pytest.mark.parametrize("seed", range(4))
def test_a_queue_does_what_its_model_does(tmp_path: Path, seed: int) -> None:
    clock = Hands(tmp_path / "clock")
    folder = tmp_path / "store"
    config = {"store.disk_used_max": "1.0"}
    with GantryProcess(folder, config, command=clock.command(sys.executable, folder)) as process:
        host, port = process.addresses["nameserver"]
        with served(f"{host}:{port}", clock) as address, MnsCaller(address) as mns:
            Walk(seed, mns, clock).run()
