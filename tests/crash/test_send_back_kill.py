"""kill -9 of a real broker while a consumer sends back: what was answered comes again, or is a dead letter.

The consumer forgets a message when its send-back was answered.  In the end each message that it forgot stands in the
group's retry topic, some after their delay ran over a restart, or in its dead-letter topic.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from gantry.leaves import records
from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.rawclient import PULL, RawClient, pull_fields, send_fields

_GROUP = "raw-client"
_CONFIG = {
    "store.flush": "SYNC_FLUSH",
    "store.segment_bytes": str(256 * 1024),
    "messages.body_bytes_max": str(64 * 1024),
    "store.index_slots": "1000",
    "store.index_entries": "4000",
    "delays.levels": "1s 2s",
}
_BACK = 36


def _message(client: RawClient, body: bytes) -> records.Record:
    """One more message, as it was delivered."""
    sent = client.call(310, send_fields("orders", 0), body)
    assert sent.code == 0
    pulled = client.call(PULL, pull_fields("orders", 0, int(sent.ext["queueOffset"])))
    return records.view(pulled.body, 0, len(pulled.body))


def _work(process: GantryProcess, rng: random.Random, number: int, forgotten: set[bytes]) -> None:
    """Send, pull, send back; the broker dies in the middle of it."""
    last = rng.randint(2, 10)
    with RawClient(process.broker) as client:
        for step in range(last + 1):
            body = b"%d-%d" % (number, step)
            record = _message(client, body)
            level = rng.choice((0, 1, -1))
            ext = {"offset": str(record.log_offset), "group": _GROUP, "delayLevel": str(level)}
            client.request(_BACK, ext)
            if step < last or rng.random() < 0.5:
                reply = client.reply()
                assert reply is not None and reply.code == 0
                forgotten.add(body)
        process.kill()


def _kept(client: RawClient) -> set[bytes]:
    return {body for topic in (f"%RETRY%{_GROUP}", f"%DLQ%{_GROUP}") for _, body in client.read(topic, 0)}


def _rounds(folder: Path, seed: int, count: int) -> None:
    rng = random.Random(seed)
    forgotten: set[bytes] = set()
    for number in range(count):
        with GantryProcess(folder / "data", _CONFIG) as process:
            _work(process, rng, number, forgotten)
    with GantryProcess(folder / "data", _CONFIG) as process, RawClient(process.broker) as client:
        until = time.monotonic() + HANG_S
        while not forgotten <= _kept(client):
            assert time.monotonic() < until, f"lost: {sorted(forgotten - _kept(client))}"
            time.sleep(0.1)
        process.stop()


def test_three_kills_lose_nothing_that_was_taken_back(tmp_path: Path) -> None:
    _rounds(tmp_path, 7, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_twenty_kills_lose_nothing_that_was_taken_back(tmp_path: Path, seed: int) -> None:
    _rounds(tmp_path, seed, 20)
