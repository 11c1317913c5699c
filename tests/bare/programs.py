"""Which programs of others tests start, and whether each is there and runs; started as a program, it tries all.

The table is `programs.txt`; tests/tidy/test_programs.py holds it against the code of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("programs.txt")
APT = TABLE.parent.parent.parent / "requirements" / "apt.txt"
ALWAYS, OWN = "-", "own"
_LINE_S = 120.0
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class Program:
    """A line of the table."""

    name: str
    group: str
    line: str


def programs() -> list[Program]:
    """Return the table."""
    rows = [row.split(maxsplit=2) for row in TABLE.read_text().splitlines() if row and not row.startswith("#")]
    return [Program(*row) for row in rows]


def groups() -> list[str]:
    """Return the groups of requirements/apt.txt, each once, in their order."""
    rows = [row.split() for row in APT.read_text().splitlines() if row and not row.startswith("#")]
    return list(dict.fromkeys(row[1] for row in rows))


def fault_of(program: Program) -> str | None:
    """Start the program once, by its line; return what is wrong, or None."""
    environment = os.environ | {"PATH": f"{os.environ['PATH']}:{_SBIN}"}
    with tempfile.TemporaryDirectory(prefix="gantry-program-") as folder:
        os.chmod(folder, 0o755)
        try:
            done = subprocess.run(
                ["bash", "-ec", program.line], cwd=folder, env=environment, stdin=subprocess.DEVNULL, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_LINE_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"did not end within {_LINE_S:g} s"
    return f"ended with {done.returncode}: {done.stdout[-1000:]}" if done.returncode else None


def main() -> int:
    """Try each; print the faults, and how many there are."""
    tried = [program for program in programs() if program.group != OWN]
    faults = 0
    for program in tried:
        fault = fault_of(program)
        if fault is not None:
            faults += 1
            print(f"{program.name} of group {program.group}: {fault}", flush=True)
    print(f"bare: {len(tried) - faults} of {len(tried)} programs start", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
