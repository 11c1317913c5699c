"""The processes of a local cluster: which there are, and signals that can only reach our own.

Every process that is started carries `LOCAL_GANTRY=<uid of the cluster>:<name>` in its environment, which the system
keeps for as long as the process lives.  So anyone who comes later finds exactly them, also those whose supervisor was
killed before it could write anything down; a number that the system has given to somebody else since is no danger.  A
signal goes through a descriptor of the process that was looked at, not to anyone who has the number by then.

The supervisor was started by a person and has no such mark; it is known by its number, when it began, and the boot.
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


class Known(NamedTuple):
    """A process of this boot, which cannot be mistaken for another one."""

    pid: int
    began: str  # in ticks of the system, since it booted
    boot: str

    def __str__(self) -> str:
        return f"{self.pid}/{self.began}/{self.boot}"

    @property
    def is_alive(self) -> bool:
        """Whether it runs still."""
        return known(self.pid) == self


def known(pid: int) -> Known | None:
    """The process that has this number now."""
    fields = _stat(pid)
    boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
    return None if fields is None or fields[0] == "Z" else Known(pid, fields[19], boot)


def parse_known(text: str) -> Known | None:
    """What `str` made of one; None for the empty text and for anything else."""
    pid, _, rest = text.partition("/")
    began, _, boot = rest.partition("/")
    return Known(int(pid), began, boot) if pid.isdecimal() and began and boot else None


def marked(uid: str, name: str) -> dict[str, str]:
    """The environment of a process of a cluster."""
    # What configures brokers by their environment is not meant for every member of a cluster.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GANTRY_") or key in _KEPT}
    return inherited | {MARK: f"{uid}:{name}", "PYTHONUNBUFFERED": "1"}


def find(uid: str) -> dict[str, int]:
    """Every process of the cluster that lives, by name."""
    found = {}
    for process in _PROC.glob("[0-9]*"):
        name = _name_of(int(process.name), uid)
        if name:
            found[name] = int(process.name)
    return found


class Gone:
    """Which of a group's processes, in the order of its ordinals, are not there; cheap to ask again and again."""

    def __init__(self, uid: str, names: Sequence[str]) -> None:
        self._uid = uid
        self._names = tuple(names)
        self._alive: dict[str, Known] = {}

    def ordinals(self) -> frozenset[int]:
        """Those whose process has ended, or never began."""
        self._alive = {name: process for name, process in self._alive.items() if process.is_alive}
        if len(self._alive) < len(self._names):
            for name, pid in find(self._uid).items():
                process = known(pid)
                if name in self._names and process is not None:
                    self._alive[name] = process
        return frozenset(number for number, name in enumerate(self._names) if name not in self._alive)


def is_stopped(pid: int) -> bool:
    """Whether it was told to stand still."""
    fields = _stat(pid)
    return fields is not None and fields[0] in "Tt"


def send(uid: str, name: str, number: signal.Signals) -> bool:
    """A signal to one process of the cluster; False when there is none."""
    pid = find(uid).get(name)
    return pid is not None and _send(pid, number, lambda: _name_of(pid, uid) == name)


def send_known(process: Known, number: signal.Signals) -> bool:
    """A signal to exactly this process; False when it is gone."""
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
    """The fields behind the name of the program, which may hold anything."""
    try:
        return (_PROC / str(pid) / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None


