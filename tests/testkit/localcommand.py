"""`gantry local` by its command alone, for tests whose own environment lacks what brokers need.

    with LocalCluster(folder, "--replicas", "3") as cluster:
        cluster.do("kill", "broker-a", "--master")
"""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType

from testkit.pairplay import Member
from testkit.process import _environment
from testkit.sources import ROOT

_UP_S, _DO_S = 300.0, 300.0
_GANTRY = [str(ROOT / ".venv/bin/python"), "-m", "gantry.cli.main", "local"]
_SMALL = ("--set", "store.disk_used_refuse=1.0", "--set", "store.disk_used_clean=1.0")


class LocalCluster:
    """`name_server` is where clients begin."""

    def __init__(self, path: Path, *flags: str) -> None:
        self._path = path
        self._flags = flags
        self._up: Member | None = None
        self.name_server = ""

    def __enter__(self) -> LocalCluster:
        self._path.mkdir(parents=True, exist_ok=True)
        command = [*_GANTRY, "up", "--dir", str(self._path), *_SMALL, *self._flags]
        self._up = Member(self._path / "up", command, _environment({}))
        try:
            self._up.wait_ready(_UP_S)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.name_server = "{}:{}".format(*self._up.addresses["nameserver"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._up is not None
        subprocess.run([*_GANTRY, "down", "--dir", str(self._path)], capture_output=True, timeout=_DO_S, check=False)
        self._up.close()

    def do(self, command: str, *arguments: str) -> str:
        """The command, again until it succeeds (a group may have no master now); the member that it was done to."""
        deadline, pause = time.monotonic() + _DO_S, threading.Event()
        while True:
            whole = [*_GANTRY, command, "--dir", str(self._path), *arguments]
            done = subprocess.run(whole, capture_output=True, text=True, timeout=_DO_S, check=False)
            if done.returncode == 0:
                return done.stdout.partition(" ")[0]
            assert time.monotonic() < deadline, done.stdout + done.stderr
            pause.wait(0.2)
