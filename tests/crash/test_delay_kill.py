"""kill -9 and orderly restarts of the real process in the middle of a storm of deliveries: each comes once, none early.

What a kill leaves is what the process had written; the log and the document together say what was delivered.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from gantry.leaves import properties, records
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.rawclient import PULL, RawClient, pull_fields, send_fields

_TOPIC = "later"
_CONFIG = {"store.index_slots": "10000", "store.index_entries": "40000", "delays.levels": "1s 2s 3s"}


def _send(client: RawClient, count: int, over_ms: int, rng: random.Random, prefix: str) -> None:
    now_ms = int(time.time() * 1000)
    for number in range(count):
        key = f"{prefix}-{number}"
        is_level = rng.random() < 0.3
        due_ms = now_ms + rng.randint(1, over_ms)
        wish = {"DELAY": str(rng.randint(1, 3))} if is_level else {"TIMER_DELIVER_MS": str(due_ms)}
        ext = send_fields(_TOPIC, number % 2)
        ext["i"] = properties.pack({"UNIQ_KEY": key, **wish}).decode()
        client.request(310, ext, key.encode())
    for _ in range(count):
        reply = client.reply()
        assert reply is not None and reply.code == 0


def _delivered(client: RawClient) -> list[str]:
    keys: list[str] = []
    for queue_id in range(2):
        offset = 0
        while (reply := client.call(PULL, pull_fields(_TOPIC, queue_id, offset))).code == 0:
            at = 0
            while at < len(reply.body):
                record = records.view(reply.body, at, len(reply.body))
                pairs = properties.parse(record.properties)
                assert record.store_ms >= int(pairs.get("TIMER_OUT_MS", "0")), "early"
                keys.append(pairs["UNIQ_KEY"])
                at += record.size
                offset = record.queue_offset + 1
    return keys


def _storm(folder: Path, seed: int, lives: int) -> None:
    rng = random.Random(seed)
    sent = 0
    for life in range(lives):
        with GantryProcess(folder / "data", _CONFIG) as process, RawClient(process.broker) as client:
            count = rng.randint(200, 500)
            _send(client, count, 3000, rng, f"l{life}")
            sent += count
            until = time.monotonic() + HANG_S
            wanted = min(len(_delivered(client)) + rng.randint(1, count), sent)
            while len(_delivered(client)) < wanted:
                assert time.monotonic() < until, "nothing is delivered any more"
            process.stop() if rng.random() < 0.3 else process.kill()
    with GantryProcess(folder / "data", _CONFIG) as process, RawClient(process.broker) as client:
        until = time.monotonic() + HANG_S
        while len(found := _delivered(client)) < sent:
            assert time.monotonic() < until, f"{len(found)} of {sent} delivered"
            time.sleep(0.1)
        assert len(found) == len(set(found)) == sent
        process.stop()


def test_a_storm_over_three_lives_delivers_each_once(tmp_path: Path) -> None:
    _storm(tmp_path, 7, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_storm_over_fifteen_lives_delivers_each_once(tmp_path: Path, seed: int) -> None:
    _storm(tmp_path, seed, 15)


def _retime_some(client: RawClient, handles: list[str], rng: random.Random) -> None:
    """Give messages other times; one whose time has come meanwhile is refused."""
    for handle in rng.sample(handles, len(handles) // 2):
        ext = {"topic": _TOPIC, "recallHandle": handle, "delayMs": str(rng.randint(0, 4_000))}
        code = client.call(RequestCode.RETIME_DELAYED, ext).code
        assert code in (ResponseCode.SUCCESS, ResponseCode.ILLEGAL_OPERATION)


def test_messages_that_got_another_time_come_once_over_kills(tmp_path: Path) -> None:
    rng = random.Random(11)
    sent = 0
    for life in range(3):
        with GantryProcess(tmp_path / "data", _CONFIG) as process, RawClient(process.broker) as client:
            handles = []
            for number in range(150):
                ext = send_fields(_TOPIC, number % 2)
                pairs = {"UNIQ_KEY": f"l{life}-{number}", "TIMER_DELAY_MS": str(rng.randint(500, 8_000))}
                ext["i"] = properties.pack(pairs).decode()
                reply = client.call(310, ext, b"m")
                assert reply.code == 0
                handles.append(reply.ext["recallHandle"])
            sent += len(handles)
            _retime_some(client, handles, rng)
            until, wanted = time.monotonic() + HANG_S, sent - rng.randint(30, 140)
            while len(_delivered(client)) < wanted:
                assert time.monotonic() < until, "nothing is delivered any more"
            process.kill()
    with GantryProcess(tmp_path / "data", _CONFIG) as process, RawClient(process.broker) as client:
        until = time.monotonic() + HANG_S
        while len(found := _delivered(client)) < sent:
            assert time.monotonic() < until, f"{len(found)} of {sent} delivered"
        quiet = time.monotonic() + 9.0  # longer than any first delay: a former time would show itself
        while time.monotonic() < quiet:
            found = _delivered(client)
        assert len(found) == len(set(found)) == sent
        process.stop()
