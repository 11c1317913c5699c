"""A consumer that is gigabytes behind while producers run: it gets everything in order, and no send waits for it.

The backlog is written first, and its pages are dropped from the page cache while no broker has them mapped.  The broker
that serves it holds only the last megabytes for warm, so nearly every pull goes through the cold reader.  How much is
written depends on the room on the disk: ten gigabytes where there is plenty, a quarter of it at most.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit.process import GantryProcess
from testkit.rawclient import FOUND, PULL, RawClient, pull_fields, split

GIB = 1 << 30
BACKLOG_MAX = 10 * GIB
BACKLOG_MIN = GIB // 4
BODY_BYTES = 32 << 10
AHEAD = 64
PRODUCERS = 4
# A send is answered in a moment; this is what tells one that waits for somebody else's reading, on a busy machine too.
SEND_WAITS_MAX_S = 15.0
CONFIG = {"store.segment_bytes": str(256 << 20), "store.warm_bytes": str(16 << 20), "store.disk_used_refuse": "1.0"}


def body(number: int) -> bytes:
    """A message of its own that is cheap to make and to compare."""
    return b"%016d" % number + bytes((number % 251,)) * (BODY_BYTES - 16)


def fill(address: tuple[str, int], count: int) -> None:
    """Write the backlog, some sends ahead of their answers."""
    with RawClient(address) as producer:
        for number in range(count + AHEAD):
            if number < count:
                producer.send("Backlog", 0, body(number))
            if number >= AHEAD:
                reply = producer.reply()
                assert reply is not None and reply.code == 0, reply and (reply.code, reply.remark)


def drop_pages(folder: Path) -> None:
    """Have the log on the disk and nowhere else."""
    for path in (folder / "commitlog").iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


class Producers:
    """Threads that send one message after the other, and know their longest wait."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.waits_s: list[float] = []
        self.failures: list[str] = []
        self._address = address
        self._is_over = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """From here to there."""
        threads = [threading.Thread(target=self._send) for _ in range(PRODUCERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()

    def _send(self) -> None:
        try:
            with RawClient(self._address) as producer:
                while not self._is_over.is_set():
                    begun = time.monotonic()
                    producer.send("Fresh", 0, b"x" * 1024)
                    reply = producer.reply()
                    self.waits_s.append(time.monotonic() - begun)
                    assert reply is not None and reply.code == 0, reply and (reply.code, reply.remark)
        except (AssertionError, OSError) as error:
            self.failures.append(repr(error))


def read_all(address: tuple[str, int], count: int) -> None:
    """The backlog from its beginning: all of it, in order, byte by byte."""
    with RawClient(address) as consumer:
        offset = 0
        while offset < count:
            fields = pull_fields("Backlog", 0, offset) | {"maxMsgNums": "64", "maxMsgBytes": str(2 << 20)}
            reply = consumer.call(PULL, fields)
            assert reply.code == FOUND, (offset, reply.code, reply.remark)
            for found, content in split(reply.body):
                assert found == offset
                assert content == body(offset), f"message {offset} begins with {content[:16]!r}"
                offset += 1


@pytest.mark.slow
def test_a_consumer_far_behind_gets_all_in_order_and_no_send_waits_for_it(tmp_path: Path) -> None:
    room = shutil.disk_usage(tmp_path).free // 4
    if room < BACKLOG_MIN:
        pytest.skip(f"missing room on the disk: a quarter of what is free is {room >> 20} MiB")
    count = min(room, BACKLOG_MAX, int(os.environ.get("BACKLOG_BYTES", BACKLOG_MAX))) // BODY_BYTES
    folder = tmp_path / "store"
    with GantryProcess(folder, CONFIG) as process:
        fill(process.broker, count)
        assert process.stop() == 0
    drop_pages(folder)
    with GantryProcess(folder, CONFIG) as process:
        producers = Producers(process.broker)
        with producers.running():
            read_all(process.broker, count)
        assert not producers.failures
        assert len(producers.waits_s) > PRODUCERS
        assert max(producers.waits_s) < SEND_WAITS_MAX_S
        assert process.stop() == 0
    shutil.rmtree(folder)
