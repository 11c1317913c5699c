"""Processes of `gantry proxy` that another process of ours starts: workers, and the proxy of `standalone`.

A child's standard input is a pipe that the parent never writes to.  When it closes, the parent is gone, and the child
stops.  So no child is left over, however the parent ended.  A child has a session of its own: Ctrl-C in a terminal
reaches the parent only, which stops it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Sequence

from gantry.errors import ConfigError

log = logging.getLogger("gantry")

CHILD = "GANTRY_PROXY_CHILD"  # in the environment of a child: one of the two kinds
ALONE, SHARED = "alone", "shared"  # whether other processes listen on its port
_READY_S = 60.0
_STOP_S = 15.0


class ProxyChild:
    """One process; start() and stop() once each."""

    def __init__(self, flags: Sequence[str], kind: str = ALONE) -> None:
        self._flags = flags
        self._kind = kind
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> str:
        """Start it. Return the text after `ready`; ConfigError when it does not get ready."""
        command = (sys.executable, "-m", "gantry.cli.main", "proxy", *self._flags)
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, start_new_session=True, env={**os.environ, CHILD: self._kind}
        )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_READY_S):
                line = (await self._process.stdout.readline()).decode()
        except TimeoutError:
            line = ""
        if not line.startswith("ready "):
            await self.stop()
            raise ConfigError("the proxy did not start; the lines before this one say why (--grpc-port -1: no proxy)")
        return line.removeprefix("ready ").strip()

    async def wait(self) -> int:
        """Return its exit code when it has ended."""
        assert self._process is not None, "start() was not called"
        return await self._process.wait()

    async def stop(self) -> None:
        """Ask it to stop, and wait; then end it."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            log.warning("the proxy did not stop within %g s and is killed", _STOP_S)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
