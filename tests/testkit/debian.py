"""Debian from this machine's own mirror, into a folder, by debootstrap.

Standard library only: `make bare` runs it before any environment is made.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_STEP_S = 900.0


def mirror() -> Sequence[str]:
    """Return where this machine's packages come from, as debootstrap's last argument; empty when apt does not say."""
    for path in (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))):
        for line in path.read_text().splitlines() if path.is_file() else ():
            found = [word for word in line.split() if word.startswith(("http://", "https://"))]
            if found and not line.startswith("#") and found[0].rstrip("/").endswith("/debian"):
                return found[:1]
    return ()


def make_root(suite: str, packages: Sequence[str], root: Path) -> None:
    """Make Debian's smallest system with these packages in the folder `root`, which is emptied first.

    RuntimeError with the end of debootstrap's output when it fails; it needs root's rights.
    """
    shutil.rmtree(root, ignore_errors=True)
    run("debootstrap", "--variant=minbase", f"--include={','.join(packages)}", suite, str(root), *mirror())


def run(*command: str) -> None:
    """Run one step; RuntimeError with the end of its output when it fails."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_STEP_S,
        check=False,
    )  # fmt: skip
    if done.returncode:
        said = done.stdout.decode("utf-8", "replace")[-3000:]
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
