"""What every command that talks to a cluster asks for: where the name server is, and how long to wait.

The address comes from --namesrv, else from NAMESRV_ADDR as RocketMQ's own tools read it, else it is this
machine's.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Coroutine

from gantry.errors import ConfigError

_ENVIRONMENT = "NAMESRV_ADDR"
_HERE = "127.0.0.1:9876"


def add_client_flags(parser: argparse.ArgumentParser) -> None:
    """The flags --namesrv and --timeout."""
    parser.add_argument(
        "--namesrv",
        metavar="HOST:PORT",
        default=os.environ.get(_ENVIRONMENT) or _HERE,
        help=f"name servers, several parted by semicolons (${_ENVIRONMENT}, else {_HERE})",
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=5.0, help="of one request (default: %(default)s)"
    )


def run_client(work: Coroutine[None, None, int]) -> int:
    """Run a coroutine that talks to a cluster; the exit code that it returns."""
    return asyncio.run(work)


def refuse(fault: str | None) -> None:
    """A name that cannot be one ends the command before anything is asked."""
    if fault is not None:
        raise ConfigError(fault)
