"""README's two commands on a Debian where nothing was ever installed by hand.

    python3 tests/bare/run.py                 make demo and make test, as a new user types them
    python3 tests/bare/run.py --suite trixie  on Debian 13 with its Python
    python3 tests/bare/run.py --only programs every group of requirements/apt.txt, and each program that tests start
    ... --only demo, --only test              one of the two; --keep leaves the root there

What runs is the last commit of this checkout.  It needs the rights of root, and ends with one line for each step; the
exit code is that of the first step that failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bare.programs import groups
from bare.root import CHECKOUT, BareRoot, bare_root

SUITES = ("bookworm", "trixie")
# The checkout belongs to another user there; git asks for this before it reads it.
_CLONE = (
    "git config --global --add safe.directory '*'; "
    "[ -d gantrymq ] || git clone --quiet file:///checkout gantrymq; cd gantrymq && "
)
_STEPS = {
    "programs": f"{_CLONE} requirements/system {' '.join(groups())} && python3 tests/bare/programs.py",
    "demo": f"{_CLONE} make demo",
    "test": f"{_CLONE} make test",
}
_STEP_S = {"programs": 900.0, "demo": 1200.0, "test": 5400.0}
_LOGS = CHECKOUT / "build" / "bare"
# What a summary keeps of a log: pytest's own last lines, what was left out, the account of the demo.
_TELLING = re.compile(r"\d+ (passed|failed|error)|left out|bare: |^FAILED|^ERROR|^Every row has its message")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tests/bare/run.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--suite", choices=SUITES, default=SUITES[0])
    parser.add_argument("--only", choices=list(_STEPS), help="one step, else demo and test")
    parser.add_argument("--keep", action="store_true", help="leave the root there")
    given = parser.parse_args()
    if os.geteuid() != 0:
        print("bare: needs root, to make a Debian of its own; sudo make bare", file=sys.stderr)
        return 2
    look = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(look, cwd=CHECKOUT, text=True, capture_output=True, check=True).stdout.strip()
    with bare_root(given.suite, keep=given.keep) as root:
        for step in [given.only] if given.only else ["demo", "test"]:
            status = _run(root, step, f"{given.suite} {commit}")
            if status:
                return status
    return 0


def _run(root: BareRoot, step: str, where: str) -> int:
    log = _LOGS / f"{where.replace(' ', '-')}-{step}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    print(f"bare: {step} on {where}, log in {log.relative_to(CHECKOUT)}", flush=True)
    began = time.monotonic()
    status = root.run(_STEPS[step], timeout_s=_STEP_S[step], log=log)
    lines = log.read_text(errors="replace").splitlines()
    telling = [line for line in lines if _TELLING.search(line)][-25:]
    print("\n".join(lines[-60:] if status else telling), flush=True)
    outcome = f"ended with {status}" if status else "passed"
    print(f"bare: {step} on {where}: {outcome}, {time.monotonic() - began:.0f} s", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
