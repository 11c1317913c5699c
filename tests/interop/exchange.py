"""A folder that Apache's broker and GantryMQ exchange, and a model of what it has to hold: plain dictionaries.

Every message has a number, which its body begins with.  A message that was acknowledged with its queue offset is
*placed*.  One that the broker delivers later (delayed, or committed) is *floating* until a check finds it; the check
waits for it.  Of a deleted topic nothing is expected any more, and nothing may come back.

What RocketMQ's broker does by itself is not held against either broker; broker/docs/divergence.md and store.md name it:

    after a kill delayed messages of the last seconds may be delivered again, also into a topic that was deleted
    meanwhile, which has a queue then; so it deletes no topic with such messages
    after a kill it removes its newest index file, and indexes again from the segment that its checkpoint trusts
    after a kill it brings back deleted messages of the segments that it reads again; so no kill follows a deletion
    where RocketMQ's broker is the next owner
    a deletion does not wait for messages that are on their way into their queues: they make the queues once more
    of a topic that it made and deleted while it had the folder, and made again, only the log tells; so it does not
    make one again, and is not killed then; nor is it where it deleted a topic twice
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gantry.leaves import frames
from gantry.wire.codes import RequestCode as Code
from interop.numbered import in_a_batch, properties, send_fields, split, unique
from interop.servers import Server
from testkit.patience import HANG_S
from testkit.rawclient import MAX_OFFSET, MIN_OFFSET, PULL, SEND, RawClient, pull_fields

FOUND = 0
BULK_BYTES = 60_000
_COMMIT = 8
_ROLL_BACK = 12
_HALF = 4
_AGAIN_S = 0.05
_FOREVER_MS = (1 << 63) - 1


@dataclass
class Topic:
    """One incarnation of a topic."""

    queues: int
    incarnation: int
    placed: dict[int, dict[int, int]] = field(default_factory=dict)  # queue -> queue offset -> number
    floating: dict[int, set[int]] = field(default_factory=dict)  # queue -> numbers
    tagged: set[int] = field(default_factory=set)

    def count(self, queue_id: int) -> int:
        return len(self.placed.get(queue_id, {})) + len(self.floating.get(queue_id, set()))

    def to_come(self) -> set[int]:
        return set[int]().union(*self.floating.values())

    def numbers(self) -> set[int]:
        return self.to_come().union(*(placed.values() for placed in self.placed.values()))


@dataclass
class Committed:
    """What a group committed: any of these, since a kill may have lost the newest."""

    offsets: list[int] = field(default_factory=lambda: [0])


@dataclass
class Exchange:
    """The folder, the model, and the one broker that has it."""

    data: Path
    topics: dict[str, Topic] = field(default_factory=dict)
    committed: dict[tuple[str, str, int], Committed] = field(default_factory=dict)  # by group, topic, queue
    stale: set[tuple[str, str, int]] = field(default_factory=set)  # the same, of former incarnations
    sizes: dict[int, int] = field(default_factory=dict)  # bytes of the bodies, by number
    delayed: set[int] = field(default_factory=set)  # whose delivery may not have been saved yet
    may_repeat: set[int] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)  # topics that were deleted
    known: set[str] = field(default_factory=set)  # topics that GantryMQ's table of queues has
    waiting: set[str] = field(default_factory=set)  # topics that RocketMQ's broker does not make again
    deleted_there: set[str] = field(default_factory=set)  # of the known: RocketMQ's broker deleted them since
    only_log_tells: bool = False  # what that broker deleted
    lookable: set[int] = field(default_factory=set)
    has_deleted: bool = False
    was_killed: bool = False
    was_ours_killed: bool = False  # at the last end of GantryMQ
    has_to_change: bool = False  # RocketMQ's broker has the folder and may not start in it again
    incarnations: int = 0
    server: Server | None = None
    client: RawClient | None = None

    @property
    def is_java(self) -> bool:
        return self.server is not None and self.server.name != "gantry"

    def begin(self, server: Server) -> None:
        """Let this broker have the folder."""
        self.server = server
        server.start()
        host, port = server.broker.split(":")
        self.client = RawClient((host, int(port)))
        if not self.is_java:
            self.known = set(self.topics)
            self.waiting.clear()
            self.deleted_there.clear()
            self.has_to_change = self.only_log_tells = False
        else:
            self.waiting |= self.gone
        if self.is_java and self.was_killed and len(list((self.data / "commitlog").glob("0*"))) > 1:
            self.lookable.clear()

    def end(self, how: str, *, is_java_next: bool) -> None:
        """`stop` or `kill`; no kill where RocketMQ's broker would bring back what was deleted."""
        assert self.server is not None and self.client is not None
        self.client.close()
        is_unsafe = self.only_log_tells or bool(self.waiting) or (self.has_deleted and is_java_next)
        self.was_killed = how == "kill" and not is_unsafe
        if not self.is_java:
            self.was_ours_killed = self.was_killed
        if not self.was_killed:
            self.server.stop()
            self.known |= set[str]() if self.is_java else set(self.topics)
            self.delayed &= {number for topic in self.topics.values() for number in topic.to_come()}
            for committed in self.committed.values():
                del committed.offsets[:-1]
        else:
            self.server.kill()
            if self.is_java or is_java_next:
                self.may_repeat |= self.delayed
        self.server = self.client = None

    def close(self) -> None:
        """Hang up; the brokers are their owner's."""
        if self.client is not None:
            self.client.close()

    # -- steps

    def send(self, name: str, kind: str, queue: int, count: int, size: int) -> None:
        topic = self.topics.get(name) or self.make_again(name, 4, 1)
        if topic is None:
            return
        queue_id = queue % topic.queues
        numbers = [self._number(size) for _ in range(count)]
        if kind == "batch":
            self._send_batch(name, queue_id, numbers)
            return
        for number in numbers:
            if kind in ("commit", "roll back"):
                self._send_half(name, queue_id, number, is_committed=kind == "commit")
            elif kind == "delayed":
                self._ask(SEND, send_fields(name, queue_id, properties(number, DELAY="1")), self.body(number))
                topic.floating.setdefault(queue_id, set()).add(number)
                self.delayed.add(number)
            else:
                found = self._ask(SEND, send_fields(name, queue_id, properties(number)), self.body(number))
                self._place(topic, found, number)
            if kind != "roll back":
                self._expect(topic, number)

    def _send_batch(self, name: str, queue_id: int, numbers: list[int]) -> None:
        topic = self.topics[name]
        bodies = b"".join(in_a_batch(self.body(number), properties(number)) for number in numbers)
        found = self._ask(Code.SEND_BATCH_MESSAGE, send_fields(name, queue_id, "") | {"m": "true"}, bodies)
        for following, number in enumerate(numbers):
            self._place(topic, found, number, following)
            self._expect(topic, number)

    def _send_half(self, name: str, queue_id: int, number: int, *, is_committed: bool) -> None:
        given = properties(number, TRAN_MSG="true", PGROUP="txs")
        found = self._ask(SEND, send_fields(name, queue_id, given, sys_flag=_HALF), self.body(number))
        ends = {
            "producerGroup": "txs",
            "topic": name,
            "tranStateTableOffset": found["queueOffset"],
            "commitLogOffset": str(int(found["msgId"][16:], 16)),
            "commitOrRollback": str(_COMMIT if is_committed else _ROLL_BACK),
            "fromTransactionCheck": "false",
            "msgId": unique(number),
            "transactionId": unique(number),
        }
        self._ask(Code.END_TRANSACTION, ends)
        if is_committed:
            self.topics[name].floating.setdefault(queue_id, set()).add(number)

    def make_again(self, name: str, queues: int, count: int) -> Topic | None:
        """Delete a topic that is there and make it, with some messages.

        RocketMQ's broker leaves no trace of a topic that it made again until there is a message in it, nor of the
        former life of a topic that GantryMQ has never seen.
        """
        self.delete(name)
        if name in self.topics or name in self.waiting:
            return None
        self._configure(name, queues)
        self.incarnations += 1
        self.topics[name] = topic = Topic(queues, self.incarnations)
        self.gone.discard(name)
        self.send(name, "plain", count, count, 20)
        return topic

    def delete(self, name: str) -> None:
        """Delete a topic, when everything is in its queues that is still to come there."""
        topic = self.topics.get(name)
        if topic is None or (self.is_java and topic.numbers() & self.may_repeat):
            return
        self._check_queues(name, topic)
        assert self.client is not None
        reply = self.client.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": name})
        # RocketMQ 5.5 without its wheel of timers fails at its very last step, when the topic is gone.
        assert reply.code == FOUND or "TimerMessageStore" in (reply.remark or ""), (name, reply.code, reply.remark)
        del self.topics[name]
        gone = {key for key in self.committed if key[1] == name}
        self.stale |= gone
        for key in gone:
            del self.committed[key]
        self.gone.add(name)
        if self.is_java and name not in self.known:
            self.waiting.add(name)
        elif self.is_java:
            self.only_log_tells |= name in self.deleted_there
            self.deleted_there.add(name)
        self.has_to_change = self.is_java and self.was_ours_killed
        self.has_deleted = True

    def resize(self, name: str, queues: int) -> None:
        """Let a topic have fewer or more queues; what stands in the others is there again when it has more."""
        topic = self.topics.get(name)
        if topic is None:
            return
        self._check_queues(name, topic)
        self._configure(name, queues)
        topic.queues = queues

    def _configure(self, name: str, queues: int) -> None:
        ext = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
        ext |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        self._ask(Code.UPDATE_AND_CREATE_TOPIC, ext)

    def commit(self, name: str, queue: int, share: float) -> None:
        """Commit a consumer offset of a group that this incarnation of the topic has for itself."""
        topic = self.topics.get(name)
        if topic is None:
            return
        queue_id = queue % topic.queues
        offset = int(len(topic.placed.get(queue_id, {})) * share)
        group = f"group{topic.incarnation}"
        self._pull(name, queue_id, 0, group=group)  # which makes the group
        ext = {"consumerGroup": group, "topic": name, "queueId": str(queue_id), "commitOffset": str(offset)}
        self._ask(Code.UPDATE_CONSUMER_OFFSET, ext)
        self.committed.setdefault((group, name, queue_id), Committed()).offsets.append(offset)

    # -- checks

    def check(self) -> None:
        """All that was acknowledged is there once, at its place, and nothing else."""
        for name, topic in self.topics.items():
            for queue_id in range(topic.queues):
                self._check_queue(name, topic, queue_id)
                self._check_keys(name, topic, queue_id)
        for key, committed in self.committed.items():
            found = self._committed(*key)
            assert found in committed.offsets, (key, found, committed.offsets)
            assert found <= self.topics[key[1]].count(key[2]), key
            committed.offsets = [found]
        for name in self.gone:
            assert self._pull(name, 0, 0).code != FOUND, f"{name} was deleted and is back"
        if not self.is_java:
            for group, name, queue_id in self.stale:
                held = self.topics[name].count(queue_id) if name in self.topics else 0
                assert self._committed(group, name, queue_id) <= held, (group, name, queue_id)

    def _check_queues(self, name: str, topic: Topic) -> None:
        for queue_id in range(topic.queues):
            self._check_queue(name, topic, queue_id)

    def _check_queue(self, name: str, topic: Topic, queue_id: int) -> None:
        expected = topic.count(queue_id)
        where = f"{name}/{queue_id} at {self.server and self.server.name}"
        if not expected:
            ends = self._end(MAX_OFFSET, name, queue_id)
            assert ends <= 0, f"{where}: ends at {ends}, and has no message"
            return
        placed, floating = topic.placed.setdefault(queue_id, {}), topic.floating.get(queue_id, set())
        found: dict[int, int] = {}

        def has_all() -> bool:
            found.update(self._read(name, queue_id, len(found)))
            return len(found) >= expected and set(found.values()) >= floating

        _wait_until(has_all, lambda: f"{where}: {sorted({*placed.values(), *floating} - set(found.values()))[:9]} lack")
        assert sorted(found) == list(range(len(found))), where
        ends = self._end(MIN_OFFSET, name, queue_id), self._end(MAX_OFFSET, name, queue_id)
        assert ends == (0, len(found)), (where, ends, len(found))
        wrong = {at: (number, found[at]) for at, number in placed.items() if found[at] != number}
        assert not wrong, (where, wrong)
        for at in sorted(set(found) - set(placed)):
            number = found[at]
            assert number in floating or number in self.may_repeat, f"{where}: {number} stands at {at}"
            floating.discard(number)
            placed[at] = number
        tagged = [found[at] for at in sorted(found) if found[at] in topic.tagged]
        assert list(self._read(name, queue_id, 0, "A").values()) == tagged, where

    def _check_keys(self, name: str, topic: Topic, queue_id: int) -> None:
        for number in set(topic.placed.get(queue_id, {}).values()) & self.lookable:
            for key, more in ((f"k{number}", {}), (unique(number), {"_UNIQUE_KEY_QUERY": "true"})):
                _wait_until(
                    lambda key=key, more=more, number=number: number in self._query(name, key, more),
                    lambda key=key: f"{name}: {key} finds nothing at {self.server and self.server.name}",
                )

    # -- requests

    def _ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> dict[str, str]:
        assert self.client is not None
        reply = self.client.ask(code, ext, body)
        assert reply.code == FOUND, (code, ext, reply.code, reply.remark)
        return reply.ext

    def _pull(self, name: str, queue_id: int, offset: int, tags: str = "*", group: str = "reader") -> frames.Command:
        assert self.client is not None
        fields = pull_fields(name, queue_id, offset) | {"consumerGroup": group, "subscription": tags}
        return self.client.ask(PULL, fields)

    def _read(self, name: str, queue_id: int, start: int, tags: str = "*") -> dict[int, int]:
        """Numbers by queue offset, from `start` on."""
        found: dict[int, int] = {}
        offset = start
        while True:
            reply = self._pull(name, queue_id, offset, tags)
            if reply.code == FOUND:
                for record in split(reply.body):
                    number = int(record.body.split(b"|")[0])
                    assert record.body == self.body(number) and record.topic == name, (name, queue_id, record)
                    assert record.queue_offset not in found, (name, queue_id, record.queue_offset)
                    found[record.queue_offset] = number
            following = int(reply.ext.get("nextBeginOffset", offset))
            if following <= offset:
                return found
            offset = following

    def _query(self, name: str, key: str, more: dict[str, str]) -> set[int]:
        assert self.client is not None
        ext = {"topic": name, "key": key, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(_FOREVER_MS)}
        reply = self.client.ask(Code.QUERY_MESSAGE, ext | more)
        return {int(record.body.split(b"|")[0]) for record in split(reply.body)} if reply.code == FOUND else set()

    def _end(self, code: int, name: str, queue_id: int) -> int:
        return int(self._ask(code, {"topic": name, "queueId": str(queue_id)})["offset"])

    def _committed(self, group: str, name: str, queue_id: int) -> int:
        assert self.client is not None
        ext = {"consumerGroup": group, "topic": name, "queueId": str(queue_id)}
        reply = self.client.ask(Code.QUERY_CONSUMER_OFFSET, ext)
        return int(reply.ext["offset"]) if reply.code == FOUND else 0

    # -- the model

    def body(self, number: int) -> bytes:
        return b"%d|" % number + b"x" * self.sizes[number]

    def _number(self, size: int) -> int:
        number = len(self.sizes)
        self.sizes[number] = size
        return number

    def _place(self, topic: Topic, found: dict[str, str], number: int, following: int = 0) -> None:
        placed = topic.placed.setdefault(int(found["queueId"]), {})
        offset = int(found["queueOffset"]) + following
        assert offset not in placed, f"queue offset {offset} was given twice, to {placed[offset]} and {number}"
        placed[offset] = number

    def _expect(self, topic: Topic, number: int) -> None:
        self.lookable.add(number)
        if number % 3 == 0:
            topic.tagged.add(number)


def _wait_until(holds: Callable[[], bool], what: Callable[[], str]) -> None:
    until, pause = time.monotonic() + HANG_S, threading.Event()
    while not holds():
        assert time.monotonic() < until, what()
        pause.wait(_AGAIN_S)
