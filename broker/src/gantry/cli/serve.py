"""Running a server from the command line: the loop, the signals, the `ready` line on stdout, the exit code.

A server is anything with `start()` and `stop()`.  After its start `ready ...` is printed once, so that a parent process
can wait for one line.  It runs until SIGTERM or SIGINT, or until it fails.  A signal also interrupts the recovery of a
large store.  A second signal ends the process at once, even while the loop waits for a disk that hangs; the store
recovers from that at the next start.

Exit codes: 0 after a requested stop, 1 after a failure, 2 when it could not start.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from types import FrameType
from typing import Protocol, TypeVar

from gantry.cli.ports import explain_listen_error
from gantry.errors import ConfigError
from gantry.transport.descriptors import raise_limit

log = logging.getLogger("gantry")
_SWEEP_LATER_S = 20.0


class Server(Protocol):
    """The methods of a server that serve() needs."""

    async def start(self) -> None:
        """Start; return when requests are answered."""

    async def stop(self) -> None:
        """Stop in order, also after a start that failed or was interrupted."""


S = TypeVar("S", bound=Server)


def serve(
    make: Callable[[Callable[[], None]], S],
    ready: Callable[[S], str],
    failure: Callable[[S], str | None] = lambda server: None,
    ports: Mapping[str, int] | None = None,
    again: Callable[[S], bool] = lambda server: False,
) -> int:
    """Run the server that `make` builds inside the loop. Return the exit code.

    make     builds a server; its argument is a function that ends everything
    ready    returns the text after the word `ready`
    failure  returns why the server had to end; None when it was asked to
    ports    flag by flag, the port that it chose, for the error text when a port is taken
    again    returns whether another server is made and started after this one has stopped
    """
    raise_limit()
    try:
        return run_loop(_serve(make, ready, failure, again))
    except ConfigError as error:
        raise explain_listen_error(error, ports or {}) from error


def run_loop(main: Coroutine[None, None, int]) -> int:
    """Run a coroutine on uvloop where it is installed, otherwise on asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def reachable(host: str, port: int) -> str:
    """Return HOST:PORT for clients on this machine: a wildcard address becomes the loopback address."""
    own = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{own}]:{port}" if ":" in own else f"{own}:{port}"


async def _serve(
    make: Callable[[Callable[[], None]], S],
    ready: Callable[[S], str],
    failure: Callable[[S], str | None],
    again: Callable[[S], bool],
) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    asked = _Asked()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _asked_to_stop, stopping, number)
        # The loop is still notified; unlike the loop's handlers this one also runs while the loop is blocked.
        signal.signal(number, asked.once_more)
    is_first = True
    sweeping: asyncio.TimerHandle | None = None
    while True:
        ending = asyncio.Event()
        server = make(ending.set)
        try:
            if await _started(server, stopping, ending):
                if is_first:
                    _sweep()
                    print(f"ready {ready(server)}", flush=True)
                else:
                    # A restart within this process: clients wait for it, so the garbage collection comes later.
                    sweeping = loop.call_later(_SWEEP_LATER_S, _sweep)
                is_first = False
                await _first_of(stopping, ending)
        finally:
            if sweeping is not None:
                sweeping.cancel()
            await server.stop()
        follows = again(server)
        if follows and stopping.is_set():
            await make(ending.set).stop()  # closes what the former server left open for its successor
        if stopping.is_set() or not follows:
            return 1 if failure(server) else 0


def _sweep() -> None:
    """Collect garbage once and freeze what remains, so that later collections skip it. Takes some 40 ms."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


async def _started(server: Server, *ends: asyncio.Event) -> bool:
    starting = asyncio.ensure_future(server.start())
    ending = asyncio.ensure_future(_first_of(*ends))
    await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if starting.done():
        await starting
        return True
    starting.cancel()
    await asyncio.wait({starting})
    return False


def _asked_to_stop(stopping: asyncio.Event, number: int) -> None:
    log.info("%s: stopping", signal.Signals(number).name)
    stopping.set()


class _Asked:
    """Counts requests to stop; the second one ends the process at once."""

    def __init__(self) -> None:
        self._times = 0

    def once_more(self, number: int, frame: FrameType | None) -> None:
        """End the process at the second signal, whatever its threads wait for."""
        self._times += 1
        if self._times > 1:
            with contextlib.suppress(OSError, ValueError, AttributeError):  # it may be closed, or None from the start
                os.write(sys.stderr.fileno(), b"gantry: asked twice, ending at once\n")
            os._exit(128 + number)
