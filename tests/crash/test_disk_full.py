"""A real file system that is really full, in the middle of sending: a small tmpfs, mounted by root.

No process may die of it.  Producers get refusals, readers get their messages, and when there is room again sending
works again without anybody's help.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testkit.ledger import AckLedger, Place
from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.rawclient import RawClient

_SIZE_KIB = 6 * 1024
_TOPIC = "orders"
_SEND_OK = 0
_UNKNOWN = (10, 11, 12)
_BODY = b"x" * 8000
_CONFIG = {
    "store.segment_bytes": str(512 * 1024),
    "messages.body_bytes_max": str(64 * 1024),
    "store.queue_file_entries": "1000",
    "store.index_slots": "1000",
    "store.index_entries": "4000",
}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("missing root, to mount a small tmpfs")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_SIZE_KIB}k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"missing the right to mount a tmpfs: {mounted.stderr.decode()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def _send(client: RawClient, ledger: AckLedger, number: int) -> int:
    body = b"%06d" % number + _BODY
    ledger.send(_TOPIC, 0, body)
    client.send(_TOPIC, 0, body)
    reply = client.reply()
    assert reply is not None, "no answer"
    if reply.code == _SEND_OK:
        ledger.ack(body, Place(_TOPIC, 0, int(reply.ext["queueOffset"])))
    elif reply.code not in _UNKNOWN:
        ledger.refuse(body)
    return reply.code


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_full_disk_refuses_reads_on_and_recovers_by_itself(small_disk: Path, tmp_path: Path, flush: str) -> None:
    ledger = AckLedger()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2 << 20))
    # The folder's neighbours (stderr) must not stand on the full disk.
    folder = tmp_path / "data"
    folder.symlink_to(small_disk / "data")
    (small_disk / "data").mkdir()
    # The oldest segments would go from a full disk, while a slow machine looks on.
    config = {**_CONFIG, "store.flush": flush, "store.clean_forcibly": "false"}
    with GantryProcess(folder, config) as process, RawClient(process.broker) as client:
        number = 0
        while _send(client, ledger, number) == _SEND_OK:
            number += 1
            assert number * len(_BODY) < _SIZE_KIB * 1024, "the disk never filled up"
        assert number > 20
        for _ in range(30):
            number += 1
            assert _send(client, ledger, number) != _SEND_OK
        found = client.read(_TOPIC, 0)
        ledger.check({(_TOPIC, 0): found})
        assert process.popen.poll() is None, process.stderr()

        ballast.unlink()
        until = time.monotonic() + HANG_S
        number += 1
        while _send(client, ledger, number) != _SEND_OK:
            number += 1
            assert time.monotonic() < until, f"still refused {HANG_S} s after room was made\n{process.stderr()}"
            time.sleep(0.05)
        ledger.check({(_TOPIC, 0): client.read(_TOPIC, 0)})
        process.kill()
    with GantryProcess(folder, {**_CONFIG, "store.flush": flush}) as process, RawClient(process.broker) as client:
        ledger.check({(_TOPIC, 0): client.read(_TOPIC, 0)})
        assert process.stop() == 0


@pytest.mark.parametrize(
    "index_entries",
    [pytest.param(4000, marks=pytest.mark.slow), 60],
    ids=["queue files", "and every 60 messages an index file"],
)
def test_a_disk_that_others_filled_gets_room_from_what_is_old_enough(
    small_disk: Path, tmp_path: Path, index_entries: int
) -> None:
    """An index file of 80 kB is larger than the reserve of a segment's sixteenth."""
    folder = tmp_path / "data"
    folder.symlink_to(small_disk / "data")
    (small_disk / "data").mkdir()
    ledger = AckLedger()

    def has_reserve_and_index() -> bool:
        index = small_disk / "data/index"
        return (small_disk / "data/gantry/reserve").exists() and index.is_dir() and any(index.iterdir())

    config = {**_CONFIG, "store.flush": "SYNC_FLUSH", "store.reserved_hours": "0"}
    config |= {"store.index_slots": "20000", "store.index_entries": str(index_entries)}
    with GantryProcess(folder, config) as process, RawClient(process.broker) as client:
        number = 0
        # Not a byte is left: what is deleted has to be written down first.
        while _send(client, ledger, number) == _SEND_OK:
            number += 1
            assert number * len(_BODY) < 2 * _SIZE_KIB * 1024, "the disk never filled up"
            if number == 250:
                _wait_for(has_reserve_and_index)
                _fill(small_disk)
        until = time.monotonic() + HANG_S
        number += 1
        while _send(client, ledger, number) != _SEND_OK:
            number += 1
            assert time.monotonic() < until, f"no room was made in {HANG_S} s\n{process.stderr()}"
            time.sleep(0.05)
        assert process.popen.poll() is None
        there = client.call(31, {"topic": _TOPIC, "queueId": "0"})
        found = client.read(_TOPIC, 0, int(there.ext["offset"]))
        assert found[-1][1].startswith(b"%06d" % number)
        process.kill()
    (small_disk / "ballast").unlink()
    with GantryProcess(folder, config) as process, RawClient(process.broker) as client:
        there = client.call(31, {"topic": _TOPIC, "queueId": "0"})
        assert client.read(_TOPIC, 0, int(there.ext["offset"])) == found
        assert process.stop() == 0


def _wait_for(holds: Callable[[], object]) -> None:
    until = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def _fill(disk: Path) -> None:
    with (disk / "ballast").open("wb", buffering=0) as ballast:
        try:
            while ballast.write(bytes(4096)):
                pass
        except OSError:
            return
