"""kill -9 of a real broker between any two steps of half, local transaction, end, check; SQLite has the ledger.

Producers work on until their connection dies; their successors after the restart answer checks from the table.  In the
end: every committed row is a message, no rolled-back one is, none is there twice.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.rawclient import RawClient
from testkit.transactionledger import COMMIT, ROLLBACK, Business, Producer, delivered, open_count

_CONFIG = {
    "store.flush": "SYNC_FLUSH",
    "store.segment_bytes": str(256 * 1024),
    "messages.body_bytes_max": str(64 * 1024),
    "store.index_slots": "1000",
    "store.index_entries": "4000",
    "transactions.check_interval_s": "0.2",
    "transactions.immunity_s": "0",
    "transactions.checks_max": "0",
    "clients.offsets_save_s": "0.1",
}


def _work(producer: Producer, business: Business, rng: random.Random, prefix: str, kill: GantryProcess) -> None:
    """Orders until the broker is killed, which happens between two steps of one of them."""
    last = rng.randint(3, 12)
    step = rng.randint(0, 3)
    for number in range(last + 1):
        key = f"{prefix}-{number}"
        is_last = number == last
        if is_last and step == 0:
            break
        answer = producer.half(key)
        assert answer.code == 0
        if is_last and step == 1:
            break
        outcome = rng.choice((COMMIT, COMMIT, ROLLBACK))
        business.write(key, outcome)
        if is_last and step == 2:
            break
        if rng.random() < 0.7 or is_last:
            producer.end(answer.ext["queueOffset"], str(int(answer.ext["msgId"][16:], 16)), outcome)
    kill.kill()


def _rounds(folder: Path, seed: int, count: int) -> None:
    rng = random.Random(seed)
    business = Business(folder / "orders.db")
    for number in range(count):
        with GantryProcess(folder / "data", _CONFIG) as process:
            producer = Producer(process.broker, business)
            try:
                producer.answer_checks(rng.choice((0.0, 0.0, 0.3)))
                _work(producer, business, rng, f"o{number}", process)
            except OSError:
                process.kill()
            finally:
                producer.close()
    with GantryProcess(folder / "data", _CONFIG) as process, RawClient(process.broker) as reader:
        producer = Producer(process.broker, business)
        until = time.monotonic() + HANG_S
        while open_count(reader):
            assert time.monotonic() < until, "halves stay open although their producer answers"
            producer.answer_checks(0.3)
        assert sorted(delivered(reader)) == business.committed()
        producer.close()
        process.stop()


def test_three_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    _rounds(tmp_path, 7, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_thirty_kills_lose_nothing_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    _rounds(tmp_path, seed, 30)
