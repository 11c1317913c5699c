"""Which twins are in use, decided once per process: the compiled ones where they are, unless GANTRY_PURE=1."""

from __future__ import annotations

import os
from importlib.util import find_spec


def _why_not() -> str:
    if os.environ.get("GANTRY_PURE") == "1":
        return "GANTRY_PURE=1 asks for the pure leaves"
    if find_spec("gantry.leaves._fast") is None or find_spec("gantry.leaves._fast.frames") is None:
        return "it was not compiled at installation; install a C compiler and python3-dev, then install again"
    return ""


why_pure: str = _why_not()
COMPILED: bool = not why_pure
