"""Long-running programs of a test cluster: started, watched, frozen, ended, never left behind.

A program dies with the *thread* that started it (`setpriv --pdeathsig`), which therefore has to outlive it, and after
`LIFE_S` at the latest.  What it says goes into NAME.log of the folder, and is shown when it does not do what is wanted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from testkit.stopping import stop

START_S = 120.0  # a busy machine; a few seconds on a quiet one
STOP_S = 60.0
LIFE_S = 3600.0
_PAUSE_S = 0.1


class DiedError(AssertionError):
    """A program ended instead of starting."""


class Daemons:
    """By name; `prefix` says where they run, as `nsenter --net=...` does."""

    def __init__(self, folder: Path, prefix: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._prefix = tuple(prefix)
        self._environment = {**os.environ, **(environment or {})}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._life = threading.Timer(LIFE_S, self.kill)
        self._life.daemon = True
        self._life.start()

    def start(self, name: str, program: Path | str, *arguments: str) -> None:
        """Begin, in the folder; returns at once."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*self._prefix, "setpriv", "--pdeathsig", "KILL", str(program), *arguments],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment,
            )  # fmt: skip

    def pid(self, name: str) -> int:
        """Of what was started: the program itself, or the `nsenter` that waits for it."""
        return self._running[name].pid

    def stop(self, name: str) -> None:
        """SIGTERM, and wait until it is gone; what does not go is killed."""
        process = self._running.pop(name)
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """All that runs, at once."""
        self._life.cancel()
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()
        self._running.clear()

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """Stop the program for the time of a `with`."""
        process = self._running[name]
        stop(process.pid)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def until(self, done: Callable[[], bool], name: str) -> None:
        """Ask until it is so, as long as the program lives; any thread may wait."""
        process = self._running[name]
        for _ in range(int(START_S / _PAUSE_S)):
            if done():
                return
            try:  # the pause in between is a wait for the program's end
                code = process.wait(_PAUSE_S)
            except subprocess.TimeoutExpired:
                continue
            raise DiedError(f"{name} ended with {code}:\n{self.log(name)}")
        raise AssertionError(f"{name} is not ready after {START_S} s:\n{self.log(name)}")

    def log(self, name: str) -> str:
        """The end of what it said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-4000:]
