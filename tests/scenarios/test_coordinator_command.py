"""`gantry coordinator` as a process: one ready line, a line for each decision, an end in order."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gantry.cli import coordinator
from gantry.cli.watched import WatchedGroups
from gantry.clock import SystemClock
from gantry.replication.haproof import Keys
from gantry.replication.haserver import HaServer
from gantry.replication.record import Phase
from gantry.replication.registerfile import FileRegister
from gantry.store.disk import RealDisk
from testkit.hamembers import TERMS, fresh
from testkit.patience import HANG_S

SECRET = "a secret of the whole cluster"
COMMAND = [sys.executable, "-m", "gantry.cli.main", "coordinator"]


class Door:
    """Implements `haserver.SealedMember` around a member of the testkit."""

    def __init__(self, ordinal: int) -> None:
        self.sim = fresh(ordinal, f"disk{ordinal}")
        self.sim.state = replace(self.sim.state, terms=replace(TERMS, members=2))

    def state(self) -> object:
        return self.sim.state

    def settings(self) -> dict[str, object]:
        return {"permission": 6}

    def more(self) -> dict[str, object]:
        return {}

    async def seal(self, epoch: int) -> None:
        self.sim.state = replace(self.sim.state, promise=epoch)


async def test_it_says_ready_once_then_what_it_decides_and_ends_in_order(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    doors = [HaServer(Door(ordinal), Keys(SECRET.encode()), SystemClock()) for ordinal in range(2)]  # type: ignore[arg-type]
    ports = [await door.start("127.0.0.1", 0) for door in doors]
    where = tmp_path / "registers" / "b0.json"
    flags = ["--group", "b0", "--register", f"file:{where}", "--secret-file", str(secret), "--output", "json"]
    flags += ["--members", ",".join(f"127.0.0.1:{port}" for port in ports), "--failover-timers", "fast"]
    process = await asyncio.create_subprocess_exec(*COMMAND, *flags, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(HANG_S):
            assert await process.stdout.readline() == b"ready coordinator=b0\n"
            said: list[str] = []
            while "promote" not in said:
                line = json.loads(await process.stdout.readline())
                said.append(line["decision"])
                assert line["group"] == "b0" and line["time_ms"] > 0 and line["reason"]
            assert said[0] == "bootstrap"
            seen = None
            while seen is None or seen.record.phase is not Phase.ACTIVE:
                seen = await FileRegister(str(where), RealDisk()).read()
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        for door in doors:
            await door.close()


async def test_a_changed_secret_is_taken_over_as_brokers_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "KEY_LOOK_S", 0.01)
    secret, old, new = tmp_path / "secret", b"the secret of before", b"the secret of today."
    secret.write_bytes(new)
    keys = Keys(old)
    watching = coordinator.Watching(
        WatchedGroups(str(secret), "", {}), keys, SystemClock(), lambda *_: "", lambda: None
    )
    await watching.start()
    async with asyncio.timeout(HANG_S):
        while keys.good != (new, old):
            assert watching.failure is None
            await asyncio.sleep(0.01)
    await watching.stop()


def test_what_is_missing_on_the_command_line_is_named() -> None:
    done = subprocess.run([*COMMAND, "--group", "b0"], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 2 and "--register, --members, --secret-file missing" in done.stderr
    assert done.stdout == "" and done.stderr.count("\n") == 1
