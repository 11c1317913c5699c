"""A real `gantry standalone` in a process of its own: started, watched, killed.

Configured by dotted keys (`store.flush`), which travel as GANTRY_* variables.  Ports are free ones of the moment,
told by the line `ready nameserver=... broker=... http=...`; another command that says such a line may stand in its
place.  stderr goes to a file next to the folder, so that nothing blocks on a pipe, and is shown when the process does
not do what a test wants.  Every process that was started is killed at the end of its `with`.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from testkit.patience import HANG_S

# A hang must end some time; a busy machine takes several times what a quiet one does.


class GantryProcess:
    """`with GantryProcess(...) as process:`; `broker` is (host, port) once it is ready."""

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        wait: bool = True,
        python: str = sys.executable,
        command: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.addresses: dict[str, tuple[str, int]] = {}
        self._stderr_path = folder.with_name(folder.name + ".stderr")
        with self._stderr_path.open("ab") as stderr:
            self.popen = subprocess.Popen(
                command or _command(python, folder),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**_environment(config or {}), **(environment or {})},
                start_new_session=True,
            )
        if wait:
            self.wait_ready()

    def wait_ready(self, seconds: float = HANG_S) -> None:
        """Until it serves; AssertionError with its stderr when it ends or is silent instead."""
        line = self._first_line(seconds)
        assert line.startswith("ready "), f"instead of ready: {line!r}\n{self.stderr()[-4000:]}"
        for part in line.split()[1:]:
            name, _, address = part.partition("=")
            host, _, port = address.rpartition(":")
            self.addresses[name] = (host, int(port))

    def _first_line(self, seconds: float) -> str:
        assert self.popen.stdout is not None
        until, line = time.monotonic() + seconds, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.popen.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n") and selector.select(max(until - time.monotonic(), 0)):
                piece = os.read(self.popen.stdout.fileno(), 4096)
                if not piece:
                    break
                line += piece
        return line.decode(errors="replace")

    @property
    def broker(self) -> tuple[str, int]:
        """Where the broker listens."""
        return self.addresses["broker"]

    def stderr(self) -> str:
        """All that it (and those before it on the same folder) wrote to stderr."""
        return self._stderr_path.read_text(errors="replace")

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.popen.kill()
        self.wait()

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, seconds: float = HANG_S) -> int:
        """Its exit code (negative: the signal that ended it); AssertionError when it goes on running."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"still running after {seconds} s\n{self.stderr()[-4000:]}") from error

    def __enter__(self) -> GantryProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.popen.poll() is None:
            self.kill()
        if self.popen.stdout is not None:
            self.popen.stdout.close()


def children_of(pid: int) -> list[int]:
    """Return the processes that the main thread of this one started, and that still run."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _command(python: str, folder: Path) -> list[str]:
    return [python, "-m", "gantry.cli.main", "standalone", "--data", str(folder)]


# Any free ports, this machine only, and not this machine's opinion of how full its disk may be.
_DEFAULTS = {
    "network.bind": "127.0.0.1",
    "network.port": "0",
    "network.vip_port": "-2",
    "network.http_port": "0",
    "standalone.nameserver_port": "0",
    "standalone.grpc_port": "-1",
    "standalone.queues_port": "-1",
    "store.disk_used_max": "1.0",
}


def _environment(config: Mapping[str, str]) -> dict[str, str]:
    """Ours without what would configure a broker, and the configuration as GANTRY_<SECTION>_<KEY>."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GANTRY_") or key == "GANTRY_PURE"}
    plain["PYTHONUNBUFFERED"] = "1"
    for key, value in {**_DEFAULTS, **config}.items():
        plain[f"GANTRY_{key.replace('.', '_').upper()}"] = value
    return plain
