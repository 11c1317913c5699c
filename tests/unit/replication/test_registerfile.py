"""The register as a file: what every register does, and what files can do besides."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from gantry.errors import OutcomeUnknownError
from gantry.replication import registerfile
from gantry.replication.register import (
    RegisterConflictError,
    RegisterDamagedError,
    RegisterGoneError,
    RegisterUnavailableError,
    Seen,
)
from gantry.replication.registerfile import FileRegister
from gantry.store.disk import Disk, RealDisk
from testkit.registers import ACTIVE, PLAYS, Play
from testkit.simdisk import Faults, PowerCut, SimDisk

PATH = "/groups/orders-b0"


async def _at_once(seconds: float) -> None:
    del seconds
    await asyncio.sleep(0)


def register(disk: Disk, path: str = PATH) -> FileRegister:
    return FileRegister(path, disk, pause=_at_once)


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
async def test_a_file_does_what_every_register_does(play: Play, tmp_path: Path) -> None:
    disk = SimDisk()
    await play(lambda: register(disk))  # type: ignore[arg-type]
    await play(lambda: register(RealDisk(), f"{tmp_path}/groups/orders-b0"))  # type: ignore[arg-type]


async def test_a_lock_that_is_not_given_back_is_waited_for_no_longer_than_allowed() -> None:
    disk = SimDisk()
    await register(disk).create(ACTIVE)
    held = disk.lock(f"{PATH}.lock")
    with pytest.raises(RegisterUnavailableError, match=r"stayed locked for 1 s: .*\.lock is locked"):
        await register(disk).read()
    held.release()
    assert await register(disk).read() is not None


async def test_a_disk_that_is_always_too_slow_is_waited_for_longer_until_it_is_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def slow(job: Callable[[], Seen | None]) -> Seen | None:
        await asyncio.sleep(0.12)  # more than twice as long
        return job()

    disk = SimDisk()
    await register(disk).create(ACTIVE)
    monkeypatch.setattr(registerfile, "_WITHIN_S", 0.05)
    read = FileRegister(PATH, disk, slow, _at_once).read
    with pytest.raises(RegisterUnavailableError, match=r"did not answer within 0\.05 s"):
        await read()
    for _ in range(20):
        with contextlib.suppress(RegisterUnavailableError):
            assert await read() is not None
            return
    raise AssertionError("it was never read")


async def test_an_answered_write_survives_every_power_cut_and_any_other_is_done_or_not() -> None:
    for cut_at in range(1, 25):
        disk = SimDisk(seed=cut_at)
        made = await register(disk).create(ACTIVE)
        disk.faults.power_cut_at = disk.faults.seen + cut_at
        done = None
        try:
            done = await register(disk).write(ACTIVE, made.version)
        except PowerCut:
            pass
        for seed in range(10):
            found = await register(disk.crash(Random(seed))).read()
            assert found is not None
            number = found.version.partition("-")[0]
            assert found == done or (done is None and (found == made or number == "2"))


async def test_a_write_that_ended_between_its_renames_is_followed_by_no_fault_that_loses_the_register() -> None:
    cuts = [Faults(power_cut_at=operation) for operation in range(1, 20)]
    for fault in (*cuts, Faults(fail_kind="create", fail_at=1)):
        disk = SimDisk()
        made = await register(disk).create(ACTIVE)
        disk.faults = Faults(fail_kind="rename", fail_at=2)
        with pytest.raises(OutcomeUnknownError):
            await register(disk).write(ACTIVE, made.version)
        assert not disk.exists(PATH) and await register(disk).read() == made
        disk.faults = fault
        with contextlib.suppress(PowerCut, OutcomeUnknownError):
            await register(disk).write(ACTIVE, made.version)
        for seed in range(5):
            assert await register(disk.crash(Random(seed))).read() is not None, fault


@pytest.mark.parametrize("kind", ["sync", "sync folder", "rename", "write"])
async def test_an_error_of_the_disk_leaves_the_outcome_open(kind: str) -> None:
    disk = SimDisk()
    made = await register(disk).create(ACTIVE)
    disk.faults.fail_kind = kind
    # Folders and lock come first; the record's own operations are the last ones of their kind.
    disk.faults.fail_at = disk.faults.seen + {"sync": 1, "sync folder": 2, "rename": 1, "write": 1}[kind]
    with pytest.raises(OutcomeUnknownError):
        await register(disk).write(ACTIVE, made.version)


@pytest.mark.parametrize("contents", [b"", b"{}", b"[]", b"\xff\xfe", b'{"version": 7}', b'{"version": "x"}'])
async def test_a_damaged_register_is_not_taken_for_an_older_one_or_for_none(contents: bytes) -> None:
    disk = SimDisk()
    made = await register(disk).create(ACTIVE)
    await register(disk).write(ACTIVE, made.version)
    disk.shorten(PATH, 0)
    disk.open(PATH, create=False).pwrite(contents, 0)
    with pytest.raises(RegisterDamagedError, match="all members at hand"):
        await register(disk).read()
    with pytest.raises(RegisterDamagedError):
        await register(disk).create(ACTIVE)


async def test_a_register_that_was_removed_as_its_error_says_is_gone_and_not_an_older_one() -> None:
    disk = SimDisk()
    made = await register(disk).create(ACTIVE)
    await register(disk).write(ACTIVE, made.version)
    assert disk.exists(f"{PATH}.bak")
    disk.unlink(PATH)
    assert await register(disk).read() is None
    with pytest.raises(RegisterGoneError):
        await register(disk).write(ACTIVE, made.version)


@pytest.mark.parametrize("how", ["removed", "set back"])
async def test_a_version_is_never_given_out_again(how: str) -> None:
    disk = SimDisk()
    made = await register(disk).create(ACTIVE)
    copy = disk.files()[PATH]
    written = await register(disk).write(ACTIVE, made.version)
    disk.unlink(PATH)
    if how == "removed":
        again = await register(disk).create(ACTIVE)
    else:
        disk.open(PATH, create=True).pwrite(copy, 0)
        again = await register(disk).write(ACTIVE, made.version)
    assert again.version not in (made.version, written.version)
    with pytest.raises(RegisterConflictError):
        await register(disk).write(ACTIVE, written.version)


async def test_a_register_of_a_former_version_is_read_and_written() -> None:
    disk = SimDisk()
    await register(disk).create(ACTIVE)
    before = json.loads(disk.files()[PATH])
    del before["chance"]
    disk.shorten(PATH, 0)
    disk.open(PATH, create=False).pwrite(json.dumps(before).encode(), 0)
    found = await register(disk).read()
    assert found is not None and found.version == "1" and found.record == ACTIVE
    assert (await register(disk).write(ACTIVE, "1")).version.startswith("2-")


_HOLDER = """
import os, signal, sys
from gantry.store.disk import RealDisk
held = RealDisk().lock(sys.argv[1])
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_process_that_was_stopped_with_the_lock_is_named_and_not_waited_for(tmp_path: Path) -> None:
    path = f"{tmp_path}/register"
    asyncio.run(register(RealDisk(), path).create(ACTIVE))
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, f"{path}.lock"])
    try:
        _, status = os.waitpid(holder.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        for call in (lambda one: one.read(), lambda one: one.write(ACTIVE, "1")):
            with pytest.raises(RegisterUnavailableError, match=rf"process {holder.pid}.*kill -CONT"):
                asyncio.run(call(register(RealDisk(), path)))
    finally:
        holder.kill()
        holder.wait()
    assert asyncio.run(register(RealDisk(), path).read()) is not None, "the lock goes with its process"
