"""A store on a simulated disk, driven step by step, with a ledger beside it; and the checks after a crash.

`StorePlay` drives: open, append, tick, close.  `inspect` opens what a crash left, reads the segments byte by byte
without the store's help, and demands of the store that its queues and index say the same as a rebuild from that log.

The sizes are tiny, so that a dozen messages roll segments, queue files and index files.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from gantry.errors import DiskFullError
from gantry.leaves import frames, properties, records
from gantry.store.background import InlineBackground
from gantry.store.opening import open_store
from gantry.store.settings import Flush, StoreSettings
from gantry.store.store import Store
from testkit.keyed import query
from testkit.ledger import Kept, LogLedger
from testkit.simclock import SimClock
from testkit.simdisk import PowerCut, SimDisk

ROOT = "/store"
TOPICS = ("orders", "bills")
_HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")


def settings(flush: Flush = Flush.SYNC, together: bool = False) -> StoreSettings:
    """A store whose files are full after a handful of messages; together: two queue files are many to sync."""
    return StoreSettings(
        root=ROOT,
        segment_bytes=8192,
        queue_file_entries=6,
        index_slots=8,
        index_entries=10,
        flush=flush,
        checkpoint_interval_ms=1000,
        sync_together_min=2 if together else 1000,
        # Nothing expires: what is missing is lost.
        delete_hours=frozenset(),
        disk_used_max=2.0,
        disk_used_clean=2.0,
        disk_used_refuse=2.0,
    )


def message(kept: Kept) -> frames.Send:
    """The message of a ledger entry, as the broker hands it to the store."""
    packed = properties.pack({"KEYS": kept.keys.decode(), "TAGS": "tag", "UNIQ_KEY": f"id-{kept.body[:12].decode()}"})
    traits, unique_key, keys, tags_code = properties.scan(packed)
    return frames.Send(
        topic=kept.topic,
        queue_id=kept.queue_id,
        body=kept.body,
        properties=packed,
        traits=traits,
        unique_key=unique_key,
        keys=keys,
        tags_code=tags_code,
        born_host=_HOST,
    )


class StorePlay:
    """One life after the other of a store on one disk.

    Plays whose background is stepped sync queue files together, the others each by itself.
    """

    def __init__(self, disk: SimDisk, ledger: LogLedger, flush: Flush = Flush.SYNC, stepped: bool = False) -> None:
        self.disk = disk
        self.ledger = ledger
        self.clock = SimClock()
        self.settings = settings(flush, together=stepped)
        self.stepped = stepped
        self.background = InlineBackground(at_once=not stepped)
        self.store: Store | None = None
        self._number = 0
        disk.now_ms = self.clock.now_ms

    def open(self) -> Store:
        """Open the store; the ledger hears what becomes durable."""
        self.background = InlineBackground(at_once=not self.stepped)
        store = open_store(self.settings, self.disk, self.clock, self.background)
        store.confirm_locally()
        store.flushed.listen(self.ledger.durable)
        self.store = store
        return store

    def append(self, count: int, body_bytes: int = 300, together: bool = False) -> None:
        """Append a run of messages that go round topics and queues."""
        assert self.store is not None
        kept = [self._attempt(body_bytes) for _ in range(count)]
        sends = [message(one) for one in kept]
        try:
            self.store.append(sends, together=together)
        except DiskFullError:
            self.ledger.take_back(count)
            raise
        except PowerCut:
            # It may have come after the flush that made the run durable.
            if all(send.size for send in sends):
                self.ledger.appended(send.log_offset + send.size for send in sends)
            raise
        self.ledger.appended(send.log_offset + send.size for send in sends)
        self.ledger.returned = len(self.ledger.known)
        assert [send.queue_offset for send in sends] == [one.queue_offset for one in kept]
        self.clock.advance(1)

    def _attempt(self, body_bytes: int) -> Kept:
        self._number += 1
        number = len(self.ledger.known)
        body = f"{number:05d}.{self._number:06d}".encode().ljust(body_bytes, b".")
        return self.ledger.attempt(TOPICS[number % 3 == 2], number // 3 % 2, body, b"k%d all" % (number % 5))

    def tick(self, milliseconds: int = 1100) -> None:
        """Let time pass, and the store do what is due."""
        assert self.store is not None
        self.clock.advance(milliseconds)
        for _ in range(6):
            self.store.tick(self.clock.now_ms())
            self.step(2)

    def step(self, count: int) -> None:
        """Let the background threads get on, when they do not run at once."""
        for _ in range(count):
            if not self.background.step():
                break

    def close(self) -> None:
        """Stop in order."""
        assert self.store is not None
        self.store.close()
        self.background.close()
        self.store = None


class LogView(NamedTuple):
    """What the segments hold, read without the store."""

    entries: list[records.Entry]
    kept: list[Kept]
    ends: list[int]


def read_log(disk: SimDisk, segment_bytes: int) -> LogView:
    """Walk the segments from the first on, up to the first thing that is no record; behind it must be zeros only."""
    files = {path: data for path, data in disk.files().items() if path.startswith(f"{ROOT}/commitlog/")}
    entries: list[records.Entry] = []
    kept: list[Kept] = []
    ended = False
    for path, data in sorted(files.items()):
        start = int(path.rsplit("/", 1)[1])
        found, stop, reason = records.walk(data, 0, segment_bytes, start, True)
        assert not (ended and found), f"records behind the end of the log: {found[:1]} in {path}"
        for entry in found:
            record = records.view(data, entry.log_offset - start, segment_bytes)
            kept.append(Kept(entry.topic, entry.queue_id, entry.queue_offset, record.body, entry.keys))
        entries += found
        if reason not in ("blank", "end"):
            ended = True
            assert not any(data[stop:]), f"{path}: {reason}; bytes behind the end of the log at {start + stop}"
    return LogView(entries, kept, [entry.log_offset + entry.size for entry in entries])


def inspect(play: StorePlay) -> None:
    """Open what a crash left and hold it against the ledger; then the ledger takes the store's view."""
    store = play.open()
    check(play, store)


def check(play: StorePlay, store: Store) -> None:
    """The open, quiet store agrees with its log, with the ledger, and with what a power cut would leave of its disk."""
    play.background.flusher.drain()
    view = read_log(play.disk, play.settings.segment_bytes)
    play.ledger.compare(view.kept)
    play.ledger.recovered(view.kept, view.ends)
    end = view.ends[-1] if view.ends else 0
    marks = [store.written.offset, store.flushed.offset, store.confirmed.offset, store.dispatched.offset]
    assert len(set(marks)) == 1 and marks[0] >= end, f"marks {marks}, the log ends at {end}"
    durable = read_log(play.disk.crash(), play.settings.segment_bytes)
    assert durable.kept == view.kept, "what the store shows after its start would not survive a power cut now"
    check_queues(play, store, view)
    check_index(play, store, view)


def check_queues(play: StorePlay, store: Store, view: LogView) -> None:
    """Queues hold each record of the log once, in order, and nothing else."""
    queues = play.ledger.queues()
    for (topic, queue_id), numbers in queues.items():
        assert store.queue_range(topic, queue_id) == (0, len(numbers)), (topic, queue_id, len(numbers))
        assert store.next_queue_offset(topic, queue_id) == len(numbers)
        for queue_offset, number in enumerate(numbers):
            entry = view.entries[number]
            assert entry.queue_offset == queue_offset, entry
            place = store.reader.entry(topic, queue_id, queue_offset)
            assert place == (entry.log_offset, entry.size, entry.tags_code), entry
            record = store.reader.record_at(entry.log_offset)
            assert record is not None and record.body == view.kept[number].body
        fetched = store.reader.fetch(topic, queue_id, 0, 1000, 1 << 20, None)
        stored = b"".join(bytes(buffer) for buffer in fetched.buffers)
        bodies = [view.kept[number].body for number in numbers]
        found, _, _ = _split(stored)
        assert found == bodies[: len(found)] and found[:1] == bodies[:1]
        assert store.reader.entry(topic, queue_id, len(numbers)) is None
    for topic, queue_id in store.queues():
        if (topic, queue_id) not in queues:
            assert store.queue_range(topic, queue_id) in (None, (0, 0)), (topic, queue_id)


def _split(stored: bytes) -> tuple[list[bytes], int, str]:
    bodies, at = [], 0
    while at < len(stored):
        record = records.view(stored, at, len(stored))
        bodies.append(record.body)
        at += record.size
    return bodies, at, "end"


def check_index(play: StorePlay, store: Store, view: LogView) -> None:
    """Each key finds exactly the records that carry it."""
    wanted: dict[tuple[str, str], list[bytes]] = {(topic, "k-never"): [] for topic in TOPICS}
    for kept, entry in zip(view.kept, view.entries, strict=True):
        for token in (*entry.keys.split(), entry.unique_key):
            wanted.setdefault((kept.topic, token.decode()), []).append(kept.body)
    for (topic, key), bodies in wanted.items():
        found = [records.view(bytes(one), 0, len(one)).body for one in query(store.reader, topic, key, 64, 0, 1 << 50)]
        assert sorted(found) == sorted(bodies[-64:]), f"{topic}#{key}: {len(found)} found, {len(bodies)} in the log"


def go_on(play: StorePlay, rng: random.Random) -> None:
    """The store that came back takes messages, and queue offsets continue."""
    for _ in range(3):
        play.append(rng.randint(1, 3), rng.choice((10, 900)))
    play.tick()


def lives_on(play: StorePlay, rng: random.Random) -> None:
    """After a crash: inspect, go on, stop in order, and look again."""
    inspect(play)
    go_on(play, rng)
    play.close()
    assert not play.disk.exists(f"{ROOT}/abort"), "an orderly stop leaves no abort"
    inspect(play)
    play.close()


def revived(play: StorePlay, disk: SimDisk, ledger: LogLedger) -> StorePlay:
    """The same settings and background on the disk after a crash."""
    after = StorePlay(disk, ledger, play.settings.flush, play.stepped)
    after.clock = play.clock
    after._number = play._number + 1000
    disk.now_ms = after.clock.now_ms
    return after


Step = tuple[str, int, int]


def random_steps(rng: random.Random, count: int) -> Sequence[Step]:
    """A script of a store's life: appends of all sizes, ticks, orderly restarts."""
    steps: list[Step] = [("open", 0, 0)]
    for _ in range(count):
        kind = rng.choices(("append", "together", "tick", "step", "reopen"), (10, 2, 3, 4, 1))[0]
        steps.append((kind, rng.randint(1, 5), rng.choice((0, 11, 200, 700, 1500))))
    return steps


def perform(play: StorePlay, steps: Sequence[Step]) -> None:
    """Carry out a script."""
    for kind, count, body_bytes in steps:
        if kind == "open":
            play.open()
        elif kind == "append":
            play.append(count, max(body_bytes, 12))
        elif kind == "together":
            play.append(min(count, 3), max(body_bytes, 12), together=True)
        elif kind == "tick":
            play.tick(300 * count)
        elif kind == "step":
            play.step(count)
        elif kind == "reopen":
            if play.store is not None:
                play.close()
            play.open()
