"""Libraries in C that stand between a real process and its system (LD_PRELOAD), compiled from the folder `shim`.

Compiled once per source text into the tests' cache folder.  A machine without a C compiler skips, and CI fails.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCES = Path(__file__).parent / "shim"
_CACHE = Path(__file__).parents[2] / ".cache" / "shims"
_FLAGS = ("-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC")


def build(name: str) -> Path:
    """Return the compiled library of the source `name`.c."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("missing a C compiler (apt install gcc)")
    source = _SOURCES / f"{name}.c"
    library = _CACHE / f"{name}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.so"
    if not library.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, *_FLAGS, "-o", str(unfinished), str(source), "-ldl"], check=True)
        unfinished.rename(library)
    return library
