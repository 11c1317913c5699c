"""`make bench`: run the scenarios, write tests/bench/results.json and print the table for RESULTS.md.

    python tests/bench/run.py [--seconds S] [--rounds N] [--only sends,pulls,...] [--folder DIR]

Nothing here asserts: figures are for reading, on a machine that is shared and noisy.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from scenarios import SCENARIOS, Bench, Row

_HERE = Path(__file__).parent
_RESULTS = _HERE / "results.json"
_TOOLS = {
    "loadgen": ["loadgen.c"],
    "epoll_server": ["epoll_server.c"],
    "sync_replay": ["sync_replay.c"],
    "sync_sizes.so": ["-shared", "-fPIC", "sync_sizes.c", "-ldl"],
}


def compile_tools(folder: Path) -> None:
    """The C programs of the benchmarks."""
    for name, arguments in _TOOLS.items():
        subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-o", str(folder / name), *arguments], cwd=_HERE, check=True)


def machine() -> str:
    """Cores, kernel and Python, for the reader of a figure."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    return f"{os.cpu_count()} x {model}, Linux {platform.release()}, Python {platform.python_version()}"


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table; columns are whatever the rows have, in order of appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "-|" * len(columns)]
    lines += ["| " + " | ".join(str(row.get(column, "")) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    """Parse the arguments, run, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(SCENARIOS))
    parser.add_argument("--folder", type=Path, help="where the stores lie; default: below tests/bench")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder or _HERE) as folder:
        tools = Path(folder) / "tools"
        tools.mkdir()
        compile_tools(tools)
        bench = Bench(tools, Path(folder), options.seconds, options.rounds)
        rows = []
        for name in options.only.split(","):
            print(f"running {name} ...", file=sys.stderr, flush=True)
            rows += SCENARIOS[name](bench)
    when = datetime.datetime.now(datetime.UTC).date().isoformat()
    _RESULTS.write_text(json.dumps({"rows": _merged(rows, when, machine())}, indent=1) + "\n")
    print(f"{when}, {machine()}\n\n{table(rows)}")


def _merged(rows: list[Row], when: str, machine: str) -> list[Row]:
    """The rows of the last results, renewed where this run has the same figure, and what is new behind them.

    Each row has its own day and machine: a run with --only renews some of them.
    """
    before = json.loads(_RESULTS.read_text())["rows"] if _RESULTS.exists() else []
    new: dict[object, Row] = {row["figure"]: {**row, "date": when, "machine": machine} for row in rows}
    kept = [new.pop(row["figure"], row) for row in before]
    return [*kept, *new.values()]


if __name__ == "__main__":
    main()
