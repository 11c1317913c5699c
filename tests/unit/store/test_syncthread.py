"""The compiled flusher keeps the promises of the flusher, and the compiled cold read those of the cold reader."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gantry.errors import StoreError, SyncFailedError
from gantry.leaves import COMPILED
from gantry.store.background import ThreadBackground, reading
from gantry.store.disk import RealDisk
from testkit.compiled import fast

fast("sysio")
from gantry.store.syncthread import SyncThread  # noqa: E402  after the skip
from testkit.patience import HANG_S  # noqa: E402

Outcome = tuple[int, StoreError | None]


async def test_an_outcome_comes_to_the_loop_by_itself(tmp_path: Path) -> None:
    flusher, told = SyncThread(asyncio.get_running_loop()), asyncio.get_running_loop().create_future()
    file = RealDisk().open(f"{tmp_path}/a", create=True)
    file.pwrite(b"x", 0)
    flusher.request([file], 1, lambda target, error: told.set_result((target, error)))
    outcome: Outcome = await asyncio.wait_for(told, HANG_S)
    flusher.close()
    file.close()
    assert outcome == (1, None)


async def test_a_drain_tells_the_newest_of_many_requests_now(tmp_path: Path) -> None:
    flusher, told = SyncThread(asyncio.get_running_loop()), list[Outcome]()
    file = RealDisk().open(f"{tmp_path}/a", create=True)
    for target in range(1, 200):
        flusher.request([file], target, lambda target, error: told.append((target, error)))
    flusher.drain()
    flusher.close()
    file.close()
    assert told == [(199, None)]


@pytest.mark.parametrize("count", [0, 64, 65, 300])
async def test_any_number_of_files_is_synced_by_one_request(tmp_path: Path, count: int) -> None:
    flusher, told = SyncThread(asyncio.get_running_loop()), list[Outcome]()
    good = RealDisk().open(f"{tmp_path}/a", create=True)
    bad = RealDisk().open(f"{tmp_path}/b", create=True)
    for target in (1, 2):
        flusher.request([good] * count, target, lambda target, error: told.append((target, error)))
    flusher.drain()
    bad.close()
    flusher.request([good] * count + [bad], 3, lambda target, error: told.append((target, error)))
    flusher.drain()
    flusher.close()
    good.close()
    last, error = told[-1]
    assert told[-2] == (2, None) and last == 3 and isinstance(error, SyncFailedError)


async def test_a_failure_names_the_file_and_stays(tmp_path: Path) -> None:
    flusher, told = SyncThread(asyncio.get_running_loop()), list[Outcome]()
    file = RealDisk().open(f"{tmp_path}/a", create=True)
    file.close()  # its descriptor is none any more: EBADF
    flusher.request([file], 5, lambda target, error: told.append((target, error)))
    flusher.drain()
    flusher.close()
    ((target, error),) = set(told)
    assert target == 5 and isinstance(error, SyncFailedError) and f"{tmp_path}/a: Bad file" in str(error)


async def test_a_closed_one_refuses(tmp_path: Path) -> None:
    background = ThreadBackground(lambda callback: callback(), asyncio.get_running_loop())
    assert isinstance(background.flusher, SyncThread) is COMPILED
    background.close()
    with pytest.raises(StoreError, match="flusher thread has ended"):
        background.flusher.request([], 1, lambda target, error: None)


def test_a_cold_read_ends_at_the_end_of_the_file_and_says_what_failed(tmp_path: Path) -> None:
    file = RealDisk().open(f"{tmp_path}/a", create=True)
    file.pwrite(b"x" * 10_000, 0)
    reading(file, [(0, 10_000), (20, 30)])()
    reading(file, [(5_000, 1 << 30)])()
    file.close()
    with pytest.raises(StoreError, match=r"read .*/a: Bad file descriptor"):
        reading(file, [(0, 10)])()
