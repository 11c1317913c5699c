"""The processes of a local cluster: how they are found, and signals that reach only them.

Every process that is started has `LOCAL_GANTRY=<uid of the cluster>:<name>` in its environment, which the system keeps
for as long as the process lives.  So every later command finds exactly these processes, even when their supervisor was
killed.  A signal is sent through a descriptor of the process that was checked, so a reused process id does no harm.

The supervisor is started by a user and has no such mark; it is identified by process id, start time and boot id.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

MARK = "LOCAL_GANTRY"
GANTRY = (sys.executable, "-m", "gantry.cli.main")
_KEPT = frozenset({"GANTRY_PURE", "GANTRY_COMPILED"})
_PROC = Path("/proc")


class ProcessIdentity(NamedTuple):
    """A process of this boot, identified so that a reused process id is not mistaken for it."""

    pid: int
    began: str  # start time in ticks since the system booted
    boot: str

    def __str__(self) -> str:
        return f"{self.pid}/{self.began}/{self.boot}"

    @property
    def is_alive(self) -> bool:
        """Whether exactly this process still runs."""
        return known(self.pid) == self


def known(pid: int) -> ProcessIdentity | None:
    """Return the process that has this id now; None when there is none."""
    fields = _stat(pid)
    boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
    return None if fields is None or fields[0] == "Z" else ProcessIdentity(pid, fields[19], boot)


def parse_known(text: str) -> ProcessIdentity | None:
    """Return the process of a text that `str` made; None for any other text."""
    pid, _, rest = text.partition("/")
    began, _, boot = rest.partition("/")
    return ProcessIdentity(int(pid), began, boot) if pid.isdecimal() and began and boot else None


def marked(uid: str, name: str) -> dict[str, str]:
    """Return the environment of a process of the cluster."""
    # Variables that configure a broker are not inherited: they would apply to every member of the cluster.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GANTRY_") or key in _KEPT}
    return inherited | {MARK: f"{uid}:{name}", "PYTHONUNBUFFERED": "1"}


def find(uid: str) -> dict[str, int]:
    """Return the process ids of the cluster's living processes, by name."""
    found = {}
    for process in _PROC.glob("[0-9]*"):
        name = _name_of(int(process.name), uid)
        if name:
            found[name] = int(process.name)
    return found


class Gone:
    """Finds which of a group's processes are not running; cheap to call often."""

    def __init__(self, uid: str, names: Sequence[str]) -> None:
        self._uid = uid
        self._names = tuple(names)
        self._alive: dict[str, ProcessIdentity] = {}

    def ordinals(self) -> frozenset[int]:
        """Return the ordinals whose process has ended, or never started."""
        self._alive = {name: process for name, process in self._alive.items() if process.is_alive}
        if len(self._alive) < len(self._names):
            for name, pid in find(self._uid).items():
                process = known(pid)
                if name in self._names and process is not None:
                    self._alive[name] = process
        return frozenset(number for number, name in enumerate(self._names) if name not in self._alive)


def is_stopped(pid: int) -> bool:
    """Return whether the process is paused by a signal."""
    fields = _stat(pid)
    return fields is not None and fields[0] in "Tt"


def send(uid: str, name: str, number: signal.Signals) -> bool:
    """Send a signal to one process of the cluster. Return False when there is none."""
    pid = find(uid).get(name)
    return pid is not None and _send(pid, number, lambda: _name_of(pid, uid) == name)


def send_known(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to exactly this process. Return False when it has ended."""
    return _send(process.pid, number, lambda: process.is_alive)


def _send(pid: int, number: signal.Signals, is_it: Callable[[], bool]) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_it():
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _name_of(pid: int, uid: str) -> str:
    wanted = f"{MARK}={uid}:".encode()
    with contextlib.suppress(OSError):
        for pair in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            if pair.startswith(wanted):
                return pair[len(wanted) :].decode("ascii", "replace")
    return ""


def _stat(pid: int) -> list[str] | None:
    """Return the fields after the program's name, which may contain any characters; None when the process has ended."""
    try:
        return (_PROC / str(pid) / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None


