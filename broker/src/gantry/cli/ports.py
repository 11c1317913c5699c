"""Ports: valid numbers, which process holds a port that is taken, and which flag chooses another.

Linux shows the holder in two steps: /proc/net/tcp names the inode of the listening socket, and some process has that
inode among its descriptors.  Without root only the user's own processes can be named.
"""

from __future__ import annotations

import argparse
import errno
import re
from collections.abc import Mapping
from pathlib import Path

from gantry.errors import ConfigError

_PORT_MAX = 65535
_LISTENING = "0A"
_WHERE = re.compile(r":(\d+): ")


def port_number(text: str, low: int = 0) -> int:
    """Return a port, 0 for any free one; ArgumentTypeError out of range, which the system would take modulo 65536."""
    if not text.removeprefix("-").isdecimal() or not low <= int(text) <= _PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from {low} to {_PORT_MAX}")
    return int(text)


def explain_listen_error(error: ConfigError, flags: Mapping[str, int]) -> ConfigError:
    """Return the error; for a port that is taken, with its holder and the flag that chooses another."""
    cause = error.__cause__
    where = _WHERE.search(str(error))
    if not isinstance(cause, OSError) or cause.errno != errno.EADDRINUSE or where is None:
        return error
    port = int(where[1])
    flag = next((flag for flag, wanted in flags.items() if wanted == port), None)
    text = f"port {port} is taken by {holder_of(port) or 'a process of another user'}"
    return ConfigError(f"{text}; stop it or choose another port with {flag} (0: any free one)" if flag else text)


def holder_of(port: int) -> str | None:
    """Return `name (pid N)` of the process that listens on the port, None when it cannot be seen."""
    inodes = {inode for table in ("tcp", "tcp6") for inode in _listening(Path("/proc/net") / table, port)}
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").glob("[0-9]*"):
        if wanted and _has_one_of(process, wanted):
            return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
    return None


def _listening(table: Path, port: int) -> list[str]:
    found = []
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return []
    for line in lines:
        fields = line.split()
        if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
            found.append(fields[9])
    return found


def _has_one_of(process: Path, sockets: set[str]) -> bool:
    try:
        return any(str(link.readlink()) in sockets for link in (process / "fd").iterdir())
    except OSError:
        return False  # it ended meanwhile, or belongs to another user
