"""Running a server from the command line: the loop, the signals, the one line on stdout, the exit code.

A server is anything with `start()` and `stop()`.  It starts, `ready ...` is printed once (a parent that
waits for it reads one line), and it runs until SIGTERM or SIGINT, or until `failed` says that it cannot go
on.  A second signal ends the process at once: whoever asks twice means it, and the store is made for that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Protocol

log = logging.getLogger("gantry")


class Server(Protocol):
    """What serve() runs."""

    async def start(self) -> None:
        """Serve; returns when requests are answered."""

    async def stop(self) -> None:
        """End in order."""


def serve(make: Callable[[asyncio.Event], Server], ready: Callable[[Server], str]) -> int:
    """Run the server that `make` builds inside the loop until it is asked to stop; the exit code.

    `make` gets the event that ends everything: a server whose store failed sets it.
    """
    return run_loop(_serve(make, ready))


def run_loop(main: Coroutine[None, None, int]) -> int:
    """Run a coroutine on uvloop where it is installed, on asyncio's own loop otherwise."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


async def _serve(make: Callable[[asyncio.Event], Server], ready: Callable[[Server], str]) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _asked_to_stop, stopping, number)
    server = make(stopping)
    try:
        if await _started(server, stopping):
            print(f"ready {ready(server)}", flush=True)
            await stopping.wait()
    finally:
        await server.stop()
    return 0


async def _started(server: Server, stopping: asyncio.Event) -> bool:
    """Start, unless the end comes first: recovery of a large store takes its time and can be called off."""
    starting = asyncio.ensure_future(server.start())
    ending = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if starting.done():
        await starting
        return True
    starting.cancel()
    await asyncio.wait({starting})
    return False


def _asked_to_stop(stopping: asyncio.Event, number: int) -> None:
    if stopping.is_set():
        print("gantry: asked twice, ending at once", file=sys.stderr)
        os._exit(128 + number)
    log.info("%s: stopping", signal.Signals(number).name)
    stopping.set()


def reachable(host: str, port: int) -> str:
    """HOST:PORT for somebody on this machine: an address that stands for all of them becomes this machine's own."""
    own = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{own}]:{port}" if ":" in own else f"{own}:{port}"
