"""`make fuzz`: the compiled leaves under sanitizers, on hostile bytes.

    python tests/bench/fuzz.py [--seconds S] [--examples N]

A copy of the package is built with -fsanitize=address,undefined below .cache/fuzz (kept: a second run compiles only
what changed), and the differential and the property tests run on it with more examples than usual, and with copies
of the bytes in each example that are a little changed (`testkit.compiled.near`): drawing costs far more than looking,
and most of what the sanitizers make slow is Hypothesis.  A read behind a
buffer, which a test on the usual build cannot see, ends the process there with a report of both stacks.

Python itself is not instrumented, so the runtime is preloaded, leaks are not looked for (the interpreter keeps much
until its end), and memory comes from malloc: inside Python's own arenas nothing would be noticed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_FOLDER = _ROOT / ".cache" / "fuzz"
_SANITIZE = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
_LEVELS = [
    "tests/differential",
    "tests/unit/leaves",
    "tests/unit/transport/test_connection.py",
    "tests/unit/transport/test_gathered.py",
    *(f"tests/properties/test_{leaf}.py" for leaf in ("frames", "properties", "records")),
]


def _build() -> None:
    """An environment with the build tools, and the extensions in a copy of the sources."""
    python = _FOLDER / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(_FOLDER / "venv")], check=True)
        requirements = str(_ROOT / "requirements" / "build.txt")
        subprocess.run([str(python), "-m", "pip", "install", "-q", "--require-hashes", "-r", requirements], check=True)
    source = _FOLDER / "broker"
    ignore = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info", "build")
    shutil.copytree(_ROOT / "broker", source, dirs_exist_ok=True, ignore=ignore)
    env = {**os.environ, "CFLAGS": _SANITIZE, "LDFLAGS": "-fsanitize=address,undefined", "GANTRY_COMPILED": "required"}
    subprocess.run([str(python), "setup.py", "-q", "build_ext", "--inplace"], cwd=source, env=env, check=True)


def _runtime(name: str) -> str:
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def main() -> int:
    """Build, run, and give pytest's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600, help="give up (and fail) after this long")
    parser.add_argument("--examples", type=int, default=500, help="examples for each differential test")
    parser.add_argument("--copies", type=int, default=10, help="changed copies of the bytes of each example")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    options = parser.parse_args()
    _build()
    env = {
        **os.environ,
        "PYTHONPATH": f"{_FOLDER / 'broker' / 'src'}",
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": f"{_runtime('libasan.so')} {_runtime('libubsan.so')}",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "HOSTILE_EXAMPLES": str(options.examples),
        "GANTRY_COPIES": str(options.copies),
    }
    env.pop("GANTRY_PURE", None)
    limits = ["-p", "no:cacheprovider", "--timeout", str(options.seconds), "-n", str(options.workers)]
    # The first finding ends it: what it says must not be lost to the limit of time.
    command = [sys.executable, "-m", "pytest", "-q", "-x", *limits, *_LEVELS]
    run = subprocess.Popen(command, cwd=_ROOT, env=env, start_new_session=True)
    try:
        return run.wait(options.seconds)
    except subprocess.TimeoutExpired:
        print(f"not finished within {options.seconds} s", file=sys.stderr)
        return 1
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)  # pytest's workers too


if __name__ == "__main__":
    sys.exit(main())
