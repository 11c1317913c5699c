"""Which twins are in use, decided once per process: the compiled ones where they are, unless GANTRY_PURE=1."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

# All or none: after an interrupted installation, where only some modules exist, the pure ones are used.  sockets
# and sysio are only for servers, which need Linux; clients on other systems use the others.
_PARTS = ["delays", "frames", "halves", "hashes", "keys", "leases", "messages", "openhalves", "properties", "queues"]
_PARTS += ["records", "requests", "runs", "scan", "sendbacks"]
if sys.platform == "linux":
    _PARTS += ["sockets", "sysio"]


def _why_not() -> str:
    if os.environ.get("GANTRY_PURE") == "1":
        return "GANTRY_PURE=1 asks for the pure leaves"
    fast = "gantry.leaves._fast"
    if find_spec(fast) is None or any(find_spec(f"{fast}.{name}") is None for name in _PARTS):
        return "it was not compiled at installation; install a C compiler and python3-dev, then install again"
    return ""


why_pure: str = _why_not()
COMPILED: bool = not why_pure
