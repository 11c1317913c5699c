"""kill -9 of the real process under load, again and again on one folder, with a ledger of what was acknowledged.

What the process had written survives it whatever the flush mode is; what is tested here is the recovery of real
files by a real start, and that queue offsets go on without holes or repetition.  (SYNC_FLUSH: test_sync_flush.)
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from testkit.ledger import AckLedger, Place
from testkit.process import GantryProcess
from testkit.rawclient import RawClient

_TOPICS = ("orders", "bills")
_QUEUES = 2
_WINDOW = 32
_SEND_OK = 0
# Small segments, so that rolls and allocations are hit too; a body may be at most half a segment.
_CONFIG = {
    "store.segment_bytes": str(256 * 1024),
    "messages.body_bytes_max": str(64 * 1024),
    "store.queue_file_entries": "500",
    "store.index_slots": "1000",
    "store.index_entries": "4000",
    "store.checkpoint_interval_ms": "50",
}


class Producer(threading.Thread):
    """Sends with a window until its connection dies; one queue of its own, so the order is its own too."""

    def __init__(self, address: tuple[str, int], ledger: AckLedger, queue: tuple[str, int], seed: str) -> None:
        super().__init__(daemon=True)
        self._client = RawClient(address)
        self._ledger = ledger
        self._queue = queue
        self._seed = seed
        self.progress = threading.Semaphore(0)

    def run(self) -> None:
        try:
            self._send_on()
        except OSError:
            pass  # the broker is gone, which is what we are here for
        finally:
            self.progress.release(1_000_000)
            self._client.close()

    def _send_on(self) -> None:
        rng = random.Random(self._seed)
        waiting: dict[int, bytes] = {}
        number = 0
        while True:
            while len(waiting) < _WINDOW:
                body = f"{self._seed}-{number}-".encode() + b"x" * rng.choice((0, 50, 900, 5000))
                number += 1
                self._ledger.send(*self._queue, body)
                waiting[self._client.send(*self._queue, body, keys=f"k{number % 100}")] = body
            reply = self._client.reply()
            assert reply is not None, "no answer"
            body = waiting.pop(reply.opaque)
            assert reply.code == _SEND_OK, (reply.code, reply.remark)
            self._ledger.ack(body, Place(*self._queue, int(reply.ext["queueOffset"])))
            self.progress.release()


def _read_all(process: GantryProcess, known: dict[tuple[str, int], list[tuple[int, bytes]]]) -> None:
    """Read what is new since the last round, and look at the last that was known again."""
    with RawClient(process.broker) as client:
        for (topic, queue_id), messages in known.items():
            keep = max(len(messages) - 5, 0)
            messages[keep:] = client.read(topic, queue_id, keep)


def _rounds(folder: Path, config: dict[str, str], rounds: int) -> None:
    rng = random.Random(rounds)
    ledger = AckLedger()
    known: dict[tuple[str, int], list[tuple[int, bytes]]] = {(t, q): [] for t in _TOPICS for q in range(_QUEUES)}
    for number in range(rounds):
        with GantryProcess(folder, config) as process:
            if number:
                _read_all(process, known)
                ledger.check(known)
            producers = [Producer(process.broker, ledger, queue, f"{number}.{at}") for at, queue in enumerate(known)]
            for producer in producers:
                producer.start()
            for _ in range(rng.randint(1, 60)):
                producers[rng.randrange(len(producers))].progress.acquire()
            process.kill()
            for producer in producers:
                producer.join()
    with GantryProcess(folder, config) as process:
        known = {queue: [] for queue in known}
        _read_all(process, known)
        ledger.check(known)
        assert process.stop() == 0
    assert len(ledger.acked) > 30 * rounds / 2


@pytest.mark.parametrize("rounds", [8, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_kill_9_under_load_loses_nothing_acknowledged(tmp_path: Path, flush: str, rounds: int) -> None:
    _rounds(tmp_path / "data", {**_CONFIG, "store.flush": flush}, rounds)


def test_a_second_broker_on_the_same_folder_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    with GantryProcess(tmp_path / "data", _CONFIG) as process:
        with GantryProcess(tmp_path / "data", _CONFIG, wait=False) as second:
            assert second.wait() == 1
        assert f"process {process.popen.pid}" in process.stderr()
        with RawClient(process.broker) as client:
            client.send("orders", 0, b"undisturbed")
            reply = client.reply()
            assert reply is not None and reply.code == _SEND_OK
        assert process.stop() == 0
