"""`make soak`: a real `gantry standalone` under a steady load for ten minutes; does it keep its memory and its word?

    python tests/bench/soak.py [--seconds S] [--rate N] [--topics N] [--groups N] [--connections N] [--slope MB]
                               [--folder DIR]

500 topics of 8 queues, 50 groups that share them out, 200 connections: half of them send, the other half belong to
consumers, which keep a pull waiting for each of their queues (4 000 in all), tell their offsets with it and send
heartbeats.  Once a second a consumer hangs up and comes again, and a producer too, for what is remembered about those
who went is a classic leak.

Exit code 1 when a bound is broken:

    a reply that is no success, a message out of order, a connection that the broker closed
    an acknowledged message that no consumer got
    anonymous memory that grows by 1 MB a minute or more, once the run has warmed up: after a third of it, or two
    minutes

Memory is what the process has for itself (RssAnon).  Pages of the log that readers have looked at are mapped
as well and shown beside it; they are the page cache's, which takes them back.  The slope is the median of the slopes
between all pairs of samples (Theil and Sen), so that one moment does not decide.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct

from peers import HEARTBEAT, QUERY_OFFSET, SEND, UPDATE_TOPIC, Held, Peer, connect, heartbeat, send_fields, topic_fields
from servers import Server, gantry

from gantry.leaves import frames, records

_QUEUES = 8
_SUSPEND_MS = 15_000
_TICK_S = 0.01
_SAMPLE_S = 1.0
_HEARTBEAT_S = 10.0
_DRAIN_S = 60.0
_UNDER_WAY_MAX = 10_000
_STARTING = 64  # connections that are made, or topics that are created, at once
_HEAD = Struct(">QdI")  # serial, when it was sent, rest of the body
_ERRORS_SHOWN = 10


@dataclass
class Ledger:
    """What was acknowledged, what came, and what went wrong."""

    unseen: set[int] = field(default_factory=set)  # acknowledged, and no consumer has it yet
    early: set[int] = field(default_factory=set)  # came before their acknowledgement
    acknowledged: int = 0
    consumed: int = 0
    under_way: int = 0
    held_back: int = 0  # ticks without a send, because too much was unanswered
    errors: list[str] = field(default_factory=list)
    sent_s: array[float] = field(default_factory=lambda: array("f"))
    came_s: array[float] = field(default_factory=lambda: array("f"))

    def ack(self, serial: int, took_s: float) -> None:
        """A send was answered with success."""
        self.acknowledged += 1
        self.sent_s.append(took_s)
        if serial in self.early:
            self.early.remove(serial)
        else:
            self.unseen.add(serial)

    def consume(self, record: records.Record) -> None:
        """A message came; each does once, because a member goes on where it was."""
        serial, sent_at, _ = _HEAD.unpack_from(record.body)
        self.consumed += 1
        self.came_s.append(time.monotonic() - sent_at)
        if serial in self.unseen:
            self.unseen.remove(serial)
        else:
            self.early.add(serial)


@dataclass
class Sample:
    """The broker's memory and CPU at a moment."""

    at_s: float
    anonymous_mb: float
    mapped_mb: float
    cpu_s: float


def sample(pid: int) -> Sample:
    """From /proc."""
    status = Path(f"/proc/{pid}/status").read_text()
    sizes = {name: int(kb) * 1024 / 1e6 for name, kb in re.findall(r"^(Rss\w+):\s+(\d+) kB$", status, re.MULTILINE)}
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(ticks[11]) + int(ticks[12])) / 100
    return Sample(time.monotonic(), sizes["RssAnon"], sizes["RssFile"] + sizes["RssShmem"], cpu_s)


def slope_mb_per_min(samples: list[Sample]) -> float:
    """The median of the slopes between all pairs that are at least ten seconds apart."""
    thinned = samples[:: max(1, len(samples) // 300)]
    slopes = [
        60 * (later.anonymous_mb - earlier.anonymous_mb) / (later.at_s - earlier.at_s)
        for earlier, later in itertools.combinations(thinned, 2)
        if later.at_s - earlier.at_s >= 10
    ]
    return statistics.median(slopes) if slopes else 0.0


class Member:
    """One consumer of a group: its connection, its heartbeat and its pulls."""

    def __init__(self, number: int, group: str, queues: list[tuple[str, int]], ledger: Ledger) -> None:
        self._number = number
        self.group = group
        self._ledger = ledger
        self.peer: Peer | None = None
        self.held = Held(group, dict.fromkeys(queues, 0), _SUSPEND_MS, ledger.consume, ledger.errors.append)

    async def come(self, port: int) -> None:
        """Connect (again) and go on where it was."""
        if self.peer is not None:
            self.peer.close()
        self.peer = await connect(port, self._ledger.errors.append)
        self.beat()
        self.held.begin(self.peer)

    def beat(self) -> None:
        """Say that it is there."""
        topics = sorted({topic for topic, _ in self.held.offsets})
        body = heartbeat(f"127.0.0.1@{self._number}", self.group, topics)
        assert self.peer is not None, "connected"
        self.peer.ask(HEARTBEAT, {}, body, lambda reply: _expect(reply, self._ledger))


def _expect(reply: frames.Command, ledger: Ledger) -> None:
    if reply.code != 0:
        ledger.errors.append(f"instead of success: {reply.code} {reply.remark}")


class Soak:
    """The whole load; one run."""

    def __init__(self, server: Server, options: argparse.Namespace) -> None:
        self.ledger = Ledger()
        self.samples: list[Sample] = []
        self._server = server
        self._options = options
        self._random = random.Random(1)
        self._topics = [f"soak-{number:04d}" for number in range(options.topics)]
        self._queues = [(topic, queue_id) for topic in self._topics for queue_id in range(_QUEUES)]
        self._fields = {queue: send_fields(*queue) for queue in self._queues}
        self._producers: list[Peer] = []
        self._resting: set[Peer] = set()
        self._members: list[Member] = []
        self._serial = 0

    async def run(self) -> None:
        """Set up, load, wait until all came."""
        await self._set_up()
        until = time.monotonic() + self._options.seconds
        async with asyncio.TaskGroup() as tasks:
            for work in (self._send, self._watch, self._beat, self._churn):
                tasks.create_task(work(until))
        await _until(lambda: not self.ledger.unseen and not self.ledger.under_way, _DRAIN_S)
        await self._compare_offsets()
        for member in self._members:
            member.held.end()
            if member.peer is not None:
                member.peer.close()
        for peer in self._producers:
            peer.close()

    async def _set_up(self) -> None:
        port, half = self._server.port, self._options.connections // 2
        self._producers = [await connect(port, self.ledger.errors.append) for _ in range(half)]
        for start in range(0, len(self._topics), _STARTING):
            calls = [
                self._producers[0].call(UPDATE_TOPIC, topic_fields(topic, _QUEUES))
                for topic in self._topics[start : start + _STARTING]
            ]
            for reply in await asyncio.gather(*calls):
                _expect(reply, self.ledger)
        groups = self._options.groups
        for number in range(half):
            # Member m of a group has every so-manieth queue of the group's topics.
            group, place, size = number % groups, number // groups, len(range(number % groups, half, groups))
            queues = [queue for topic in self._topics[group::groups] for queue in self._queues_of(topic)]
            self._members.append(Member(number, f"soak-group-{group}", queues[place::size], self.ledger))
        for member in self._members:
            await member.come(port)

    def _queues_of(self, topic: str) -> list[tuple[str, int]]:
        return [(topic, queue_id) for queue_id in range(_QUEUES)]

    async def _send(self, until: float) -> None:
        owed, last = 0.0, time.monotonic()
        while (now := time.monotonic()) < until:
            owed = min(owed + (now - last) * self._options.rate, self._options.rate)
            last = now
            if self.ledger.under_way > _UNDER_WAY_MAX:
                self.ledger.held_back += 1
            else:
                while owed >= 1:
                    owed -= 1
                    self._send_one()
            await asyncio.sleep(_TICK_S)

    def _send_one(self) -> None:
        peer = self._random.choice(self._producers)
        if peer in self._resting:
            return
        self._serial += 1
        serial, begun = self._serial, time.monotonic()
        rest = self._random.randrange(64, 1024)
        self.ledger.under_way += 1

        def answered(reply: frames.Command) -> None:
            self.ledger.under_way -= 1
            if reply.code == 0:
                self.ledger.ack(serial, time.monotonic() - begun)
            else:
                self.ledger.errors.append(f"a send got {reply.code} {reply.remark}")

        body = _HEAD.pack(serial, begun, rest) + bytes(rest)
        peer.ask(SEND, self._fields[self._random.choice(self._queues)], body, answered)

    async def _watch(self, until: float) -> None:
        while time.monotonic() < until:
            self.samples.append(sample(self._server.pid))
            await asyncio.sleep(_SAMPLE_S)

    async def _beat(self, until: float) -> None:
        # By the clock: where this process is late, the next ones follow at once, and nobody is taken for gone.
        begun, beats, every_s = time.monotonic(), 0, _HEARTBEAT_S / len(self._members)
        while (now := time.monotonic()) < until:
            for number in range(beats, int((now - begun) / every_s) + 1):
                self._members[number % len(self._members)].beat()
                beats = number + 1
            await asyncio.sleep(every_s)

    async def _churn(self, until: float) -> None:
        """Once a second a member comes again, and a producer without anything under way."""
        while time.monotonic() < until:
            await asyncio.sleep(1.0)
            await self._random.choice(self._members).come(self._server.port)
            place = self._random.randrange(len(self._producers))
            peer = self._producers[place]
            self._resting.add(peer)
            await _until(lambda peer=peer: not peer.is_waiting, _DRAIN_S)
            self._producers[place] = await connect(self._server.port, self.ledger.errors.append)
            self._resting.discard(peer)
            peer.close()

    async def _compare_offsets(self) -> None:
        """What pulls told on their way is what the broker knows of the groups' progress."""
        for member in self._members:
            assert member.peer is not None, "connected"
            group = member.group
            for (topic, queue_id), offset in list(member.held.offsets.items())[:4]:
                ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
                try:
                    reply = await member.peer.call(QUERY_OFFSET, ext)
                except TimeoutError:
                    self.ledger.errors.append(f"{group}: its connection answers no more")
                    break
                if offset and reply.ext.get("offset") != str(offset):
                    self.ledger.errors.append(f"{group} {topic} {queue_id}: {reply.ext} for {offset}")


async def _until(is_so: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:  # noqa: ASYNC110 - many things change it
        await asyncio.sleep(_TICK_S)


def _quantiles(values: array[float]) -> str:
    ordered = sorted(values) or [0.0]
    half, most = (1000 * ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    return f"{half:.2f} / {most:.2f} ms"


def report(soak: Soak, options: argparse.Namespace) -> bool:
    """Print the table; whether all bounds held."""
    ledger, samples = soak.ledger, soak.samples
    warm_s = samples[0].at_s + min(120.0, options.seconds / 3)
    warm = [one for one in samples if one.at_s >= warm_s]
    slope = slope_mb_per_min(warm)
    seconds = samples[-1].at_s - samples[0].at_s
    cpu = 100 * (samples[-1].cpu_s - samples[0].cpu_s) / max(seconds, 1)
    lost = len(ledger.unseen) + ledger.under_way
    rows = [
        ("acknowledged", f"{ledger.acknowledged} ({ledger.acknowledged / max(seconds, 1):.0f}/s)", "", True),
        ("errors", str(len(ledger.errors)), "0", not ledger.errors),
        ("acknowledged, not consumed", str(lost), "0", not lost),
        ("consumed, never acknowledged", str(len(ledger.early)), "0", not ledger.early),
        ("anonymous memory, slope", f"{slope:+.2f} MB/min", f"< {options.slope:g} MB/min", slope < options.slope),
        ("anonymous memory", f"{warm[0].anonymous_mb:.1f} to {warm[-1].anonymous_mb:.1f} MB", "", True),
        ("mapped pages", f"{warm[0].mapped_mb:.0f} to {warm[-1].mapped_mb:.0f} MB", "", True),
        ("CPU of the broker", f"{cpu:.1f} %", "", True),
        ("send p50 / p99", _quantiles(ledger.sent_s), "", True),
        ("delivery p50 / p99", _quantiles(ledger.came_s), "", True),
        ("ticks held back", str(ledger.held_back), "", True),
    ]
    print("| what | found | bound | |\n|-|-|-|-|")
    for what, found, bound, is_kept in rows:
        print(f"| {what} | {found} | {bound} | {'' if is_kept else 'BROKEN'} |")
    for error in ledger.errors[:_ERRORS_SHOWN]:
        print(f"error: {error}", file=sys.stderr)
    return all(is_kept for *_, is_kept in rows)


def main() -> int:
    """Parse the arguments, run, and give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=float, default=1000.0, help="messages a second")
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--groups", type=int, default=50)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--slope", type=float, default=1.0, help="MB a minute that memory may grow")
    parser.add_argument("--folder", type=Path, help="where the store lies; default: below tests/bench")
    options = parser.parse_args()
    if not (options.seconds >= 30 and options.groups <= options.topics and options.groups <= options.connections // 2):
        parser.error("at least 30 seconds, and a topic and two connections for each group")
    # Anyone who ends this run ends its broker too, and the store goes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parent = options.folder or Path(__file__).parent
    with tempfile.TemporaryDirectory(dir=parent) as folder, gantry(Path(folder) / "store") as server:
        soak = Soak(server, options)
        asyncio.run(soak.run())
        return 0 if report(soak, options) else 1


if __name__ == "__main__":
    sys.exit(main())
