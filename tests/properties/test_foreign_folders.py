"""Whatever RocketMQ's broker did to topics while it had the folder, ours finds what it acknowledged and nothing else.

Our own store plays RocketMQ's broker.  Of what it writes into files that RocketMQ's does not know nothing comes back:
they are as ours left them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from gantry.store import filenames
from gantry.store.store import Store
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.smallstore import bodies, crash, message, opened, small

ROOT = "/s"
OURS = (f"{ROOT}/gantry/", f"{ROOT}/config/topicGenerations.json")

sends = st.tuples(st.just("send"), st.sampled_from("TU"), st.integers(0, 2), st.integers(1, 12))
deletions = st.tuples(st.just("delete"), st.sampled_from("TU"), st.just(0), st.just(0))
sessions = st.tuples(st.booleans(), st.lists(sends | deletions, max_size=6), st.booleans())


@dataclass
class Folder:
    """The folder, what it has to hold, and what waits for our broker while RocketMQ's has it."""

    segment_bytes: int
    disk: SimDisk = field(default_factory=SimDisk)
    clock: SimClock = field(default_factory=SimClock)
    kept: dict[str, bytes] = field(default_factory=dict)
    queues: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    number: int = 0
    known: set[str] = field(default_factory=set)  # topics that our table of queues has
    came_back: set[tuple[str, int]] = field(default_factory=set)  # queues of which nobody has acknowledged a message

    def open(self) -> Store:
        self.clock.advance(60_000)
        given = small(ROOT, segment_bytes=self.segment_bytes, queue_file_entries=8, index_slots=64, index_entries=4000)
        return opened(given, self.clock, disk=self.disk)

    def session(self, store: Store, operations: list[tuple[str, str, int, int]]) -> None:
        for what, topic, queue_id, count in operations:
            if what == "delete":
                store.delete_queues(topic)
                self.queues = {key: found for key, found in self.queues.items() if key[0] != topic}
                self.came_back &= set(self.queues)
            for _ in range(count):
                self.number += 1
                body = b"%d" % self.number + b"x" * 900
                store.append([message(topic, queue_id, body)])
                self.queues.setdefault((topic, queue_id), []).append(body)
                self.came_back.discard((topic, queue_id))

    def check(self, store: Store, *, may_come_back: bool) -> None:
        """All is there under its offsets.

        Topics of which only the log knows may come back when they were deleted; after a stop in order only their
        queues that were not made again with them.  What came back may go when queues are built again.
        """
        for key in {key for key in self.came_back if store.queue_range(*key) is None}:
            self.came_back.discard(key)
            del self.queues[key]
        for (topic, queue_id), expected in self.queues.items():
            assert bodies(store, topic, queue_id) == expected, (topic, queue_id)
            assert store.queue_range(topic, queue_id) == (0, len(expected))
        back = set(store.queues()) - set(self.queues)
        assert may_come_back or {topic for topic, _ in back} <= {topic for topic, _ in self.queues}, back
        assert {topic for topic, _ in back} & self.known == set()
        self.queues |= {key: bodies(store, *key) for key in back}
        self.came_back |= back

    def to_rocketmq(self) -> None:
        self.kept = {path: data for path, data in self.disk.files().items() if path.startswith(OURS)}

    def back(self) -> None:
        for path in self.disk.files():
            if path.startswith(OURS):
                self.disk.unlink(path)
        for path, data in self.kept.items():
            self._write(path, data)
        topics = {topic: {"topicName": topic} for topic in ("TBW102", *(topic for topic, _ in self.queues))}
        self._write(filenames.lock(ROOT), b"lock7\n")
        self.disk.make_folders(filenames.consume_queues(ROOT))
        self._write(filenames.config(ROOT, "topics.json"), json.dumps({"topicConfigTable": topics}).encode())

    def _write(self, path: str, data: bytes) -> None:
        self.disk.make_folders(path.rsplit("/", 1)[0])
        self.disk.unlink(path)
        file = self.disk.open(path, create=True)
        file.pwrite(data, 0)
        file.close()


def end(store: Store, disk: SimDisk, is_killed: bool) -> None:
    if is_killed:
        crash(store)
        disk.restart()
    else:
        store.close()


@settings(max_examples=60)
@given(st.sampled_from([16384, 65536]), st.lists(sessions, min_size=2, max_size=5))
def test_what_rocketmqs_broker_deleted_and_made_again_is_here_what_it_was_there(
    segment_bytes: int, given: list[tuple[bool, list[tuple[str, str, int, int]], bool]]
) -> None:
    folder = Folder(segment_bytes)
    was_rocketmq = was_killed = False
    for wants_rocketmq, operations, is_killed in given:
        is_rocketmq = wants_rocketmq and not was_rocketmq
        if is_rocketmq:
            folder.to_rocketmq()
        store = folder.open()
        if not is_rocketmq:
            folder.check(store, may_come_back=was_killed)
        folder.session(store, operations)
        end(store, folder.disk, is_killed)
        if is_rocketmq:
            folder.back()
        if is_killed or not is_rocketmq:
            folder.known = set() if is_killed else {topic for topic, _ in folder.queues}
        was_rocketmq, was_killed = is_rocketmq, is_killed
    store = folder.open()
    folder.check(store, may_come_back=was_killed)
    store.close()
    folder.disk.remove_tree(filenames.consume_queues(ROOT))
    store = folder.open()
    folder.known = set()
    folder.check(store, may_come_back=True)
    store.close()
