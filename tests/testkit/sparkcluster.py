"""A cluster of real processes for tests that run where PySpark is and the broker's packages are not.

    with LocalCluster(folder, python, "--replicas", "3") as cluster:
        cluster.do("kill", "broker-a", "--master", "--keep-down")

The same `gantry local up` as in `localplay`, which looks into it with the broker's own modules.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType

from testkit.process import GantryProcess

START_S = 300.0
_DO_S = 120.0
_SMALL = ("--set", "store.disk_used_refuse=1.0", "--set", "store.disk_used_clean=1.0")


class LocalCluster:
    """See the module."""

    def __init__(self, folder: Path, python: str, *flags: str) -> None:
        self._folder = folder
        self._gantry = [python, "-m", "gantry.cli.main", "local"]
        folder.mkdir(parents=True)
        command = [*self._gantry, "up", "--dir", str(folder), *_SMALL, *flags]
        self._up = GantryProcess(folder / "up", wait=False, command=command)
        self.nameserver = ""

    def do(self, command: str, *arguments: str) -> None:
        """`gantry local COMMAND`, which has to succeed."""
        done = subprocess.run(
            [*self._gantry, command, "--dir", str(self._folder), *arguments],
            capture_output=True,
            text=True,
            timeout=_DO_S,
        )
        assert done.returncode == 0, f"gantry local {command}: {done.stderr[-2000:]}\n{self._up.stderr()[-4000:]}"

    def __enter__(self) -> LocalCluster:
        try:
            self._up.wait_ready(START_S)
        except BaseException:
            self._end()
            raise
        self.nameserver = "{}:{}".format(*self._up.addresses["nameserver"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        """End everything; nothing of it is left."""
        try:
            self.do("down")
        finally:
            self._up.__exit__(None, None, None)
