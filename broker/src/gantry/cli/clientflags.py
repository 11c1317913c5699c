"""The flags of every command that talks to a cluster: name servers and time-out.

The address comes from --namesrv, else from NAMESRV_ADDR like that of RocketMQ's tools, else it is this machine.
--timeout bounds one request; a command may send several, one after the other.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Coroutine, Mapping

from gantry.cli.numbers import Number
from gantry.errors import ConfigError

_ENVIRONMENT = "NAMESRV_ADDR"
_HERE = "127.0.0.1:9876"
_TIMEOUT_MAX_S = 3600.0


def add_client_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags --namesrv and --timeout."""
    parser.add_argument(
        "--namesrv",
        metavar="HOST:PORT",
        default=os.environ.get(_ENVIRONMENT) or _HERE,
        help=f"name servers, several parted by semicolons (${_ENVIRONMENT}, else {_HERE})",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=Number(0.0, _TIMEOUT_MAX_S, is_above=True),
        default=5.0,
        help="of one request (default: %(default)g)",
    )


def check_texts(arguments: Mapping[str, object]) -> None:
    """Raise ConfigError for text that is not UTF-8, which names and properties cannot hold; message bodies may be any
    bytes.
    """
    for name, given in arguments.items():
        for text in given if isinstance(given, list) else [given]:
            if isinstance(text, str) and name != "body" and any("\udc80" <= char <= "\udcff" for char in text):
                raise ConfigError(f"{text[:40]!a} is not UTF-8; only the body of a message may be any bytes")


def run_client(work: Coroutine[None, None, int]) -> int:
    """Run a coroutine that talks to a cluster. Return its exit code."""
    import asyncio  # a third of the time that a --help takes

    return asyncio.run(work)


def refuse(fault: str | None) -> None:
    """Raise ConfigError with this text, unless it is None."""
    if fault is not None:
        raise ConfigError(fault)
