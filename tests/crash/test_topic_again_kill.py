"""kill -9 around the deletion of a topic that is made again under load, with a producer and a reader who never stop.

Deletion and making again are answered when no crash can undo them.  So behind every answer: what was acknowledged
before it is never seen again, what was acknowledged behind it is all there, and a reader who was in the middle of the
old topic, in no held pull, and who reconnects as if nothing had happened, misses none of it.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from abc import abstractmethod
from pathlib import Path

import pytest

from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.rawclient import RawClient, pull_fields, split

_TOPIC, _GROUP = "orders", "readers"
_PULL, _COMMIT, _MAKE, _DELETE = 11, 15, 17, 215
_FOUND, _NOT_FOUND, _MOVED, _NO_TOPIC = 0, 19, 21, 17
_CONFIG = {
    "store.segment_bytes": str(256 * 1024),
    "messages.body_bytes_max": str(64 * 1024),
    "store.queue_file_entries": "100",
    "store.index_slots": "1000",
    "store.index_entries": "4000",
    "store.checkpoint_interval_ms": "50",
    "clients.offsets_save_s": "0.2",
}


class _Worker(threading.Thread):
    """Works on one connection after the other; `go` names the broker of the life, None in between."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.go: tuple[str, int] | None = None
        self.is_over = False
        self.is_paused = False

    def run(self) -> None:
        while not self.is_over:
            if self.go is not None:
                with contextlib.suppress(OSError), RawClient(self.go) as client:
                    while not self.is_over:
                        if self.is_paused:
                            time.sleep(0.01)
                        else:
                            self.work(client)
            time.sleep(0.01)

    @abstractmethod
    def work(self, client: RawClient) -> None:
        """One request."""


class _Producer(_Worker):
    """Numbers its messages; knows which were acknowledged, and which it began to send."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.acked: list[int] = []

    def work(self, client: RawClient) -> None:
        number, self.begun = self.begun, self.begun + 1
        client.send(_TOPIC, 0, b"%d" % number)
        reply = client.reply()
        if reply is not None and reply.code == 0:
            self.acked.append(number)


class _Reader(_Worker):
    """Goes on where it stopped, whatever happened to the connection, and obeys when it is sent elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = 0
        self.got: list[int] = []

    def work(self, client: RawClient) -> None:
        ext = pull_fields(_TOPIC, 0, self.offset) | {"consumerGroup": _GROUP, "maxMsgNums": "5"}
        reply = client.call(_PULL, ext)
        if reply.code == _FOUND:
            self.got += [int(body) for _, body in split(reply.body)]
        if reply.code in (_FOUND, _MOVED):
            self.offset = int(reply.ext["nextBeginOffset"])
            commit = {"consumerGroup": _GROUP, "topic": _TOPIC, "queueId": "0", "commitOffset": str(self.offset)}
            client.call(_COMMIT, commit)
        else:
            time.sleep(0.01)


def _make(client: RawClient) -> None:
    ext = {"topic": _TOPIC, "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    ext |= {"readQueueNums": "1", "writeQueueNums": "1", "topicSysFlag": "0", "order": "false"}
    assert client.call(_MAKE, ext).code == 0


def _story(folder: Path, flush: str, rounds: int) -> None:
    rng = random.Random(rounds)
    config = {**_CONFIG, "store.flush": flush}
    producer, reader = _Producer(), _Reader()
    deleted_below, since, got_at = 0, 0, 0  # numbers begun before the last answered deletion; behind its answer
    producer.start()
    reader.start()
    try:
        for _ in range(rounds):
            with GantryProcess(folder, config) as process, RawClient(process.broker) as admin:
                _make(admin)
                producer.go = reader.go = process.broker
                acked = len(producer.acked) + rng.randint(20, 200)
                _until(lambda acked=acked: len(producer.acked) >= acked)  # type: ignore[misc]
                reader.is_paused = False
                reader_at = len(reader.got)
                _until(lambda reader_at=reader_at: len(reader.got) > reader_at)  # type: ignore[misc]
                # Else it would ask for more than there is when the topic is young.
                reader.is_paused = rng.random() < 0.7
                before, got_before = len(producer.acked), len(reader.got)
                old = producer.acked[before - 1]
                assert admin.call(_DELETE, {"topic": _TOPIC}).code == 0
                deleted_below, since, got_at = old + 1, producer.begun + 1, got_before
                if rng.random() < 0.7:
                    _make(admin)
                time.sleep(rng.random() * 0.3)
                if rng.random() < 0.5:
                    reader.is_paused = False
                producer.go = reader.go = None
                process.kill()
        with GantryProcess(folder, config) as process, RawClient(process.broker) as client:
            _make(client)
            producer.go = reader.go = process.broker
            acked = len(producer.acked) + 300
            _until(lambda: len(producer.acked) >= acked)
            reader.is_paused = False
            producer.is_over = True
            producer.join()
            there = [int(body) for _, body in client.read(_TOPIC, 0)]
            wanted = {number for number in producer.acked if number >= since}
            assert min(there) >= deleted_below, "what was acknowledged before the deletion never comes back"
            assert wanted <= set(there) and there == sorted(set(there))
            _until(lambda: wanted <= set(reader.got[got_at:]))
            assert process.stop() == 0
    finally:
        producer.is_over = reader.is_over = True
        producer.join()
        reader.join()


def _until(is_so) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + HANG_S
    while not is_so():
        assert time.monotonic() < end, "nothing goes on"
        time.sleep(0.01)


@pytest.mark.parametrize("flush", [pytest.param("SYNC_FLUSH", marks=pytest.mark.slow), "ASYNC_FLUSH"])
def test_a_topic_made_again_under_load_over_three_kills_shows_nothing_old_and_hides_nothing_new(
    tmp_path: Path, flush: str
) -> None:
    _story(tmp_path / "data", flush, 3)


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_topic_made_again_over_twenty_kills_shows_nothing_old_and_hides_nothing_new(
    tmp_path: Path, flush: str
) -> None:
    _story(tmp_path / "data", flush, 20)
