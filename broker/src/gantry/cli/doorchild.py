"""Processes of `gantry proxy` and `gantry queues` that another process of ours starts: workers, those of `standalone`.

A child's standard input is a pipe that the parent never writes to.  When it closes, the parent is gone, and the child
stops.  So no child is left over, however the parent ended.  A child has a session of its own: Ctrl-C in a terminal
reaches the parent only, which stops it.

`KeptDoor` starts those of `standalone` again when they end: leases are the broker's and the keys of handles are in a
file, so clients only have to connect again.  Between two starts it waits, longer each time, for 30 s at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence

from gantry.errors import ConfigError
from gantry.transport.tasks import cancelled, watched

log = logging.getLogger("gantry")

CHILD = "GANTRY_PROXY_CHILD"  # in the environment of a child: one of the two kinds
ALONE, SHARED = "alone", "shared"  # whether other processes listen on its port
_PORT_FLAGS = {"proxy": "--grpc-port", "queues": "--queues-port"}  # of `gantry standalone`
_NAMES = {"proxy": "the proxy", "queues": "the server of HTTP queues"}
_READY_S = 60.0
_STOP_S = 15.0
_PAUSE_FIRST_S, _PAUSE_LAST_S = 0.5, 30.0
_LONG_S = 60.0  # one that ran for so long has not failed at its start: the next pause is the first again


class DoorChild:
    """One process of a command; start() and stop() once each."""

    def __init__(self, command: str, flags: Sequence[str], kind: str = ALONE) -> None:
        self._command = command
        self._flags = flags
        self._kind = kind
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> str:
        """Start it. Return the text after `ready`; ConfigError when it does not get ready."""
        command = (sys.executable, "-m", "gantry.cli.main", self._command, *self._flags)
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
            without = f"{_PORT_FLAGS[self._command]} -1: without"
            raise ConfigError(f"gantry {self._command} did not start; the lines before this one say why ({without})")
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
            log.warning("gantry %s did not stop within %g s and is killed", self._command, _STOP_S)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class KeptDoor:
    """A process of a command that is started again when it ends; start() and stop() once each."""

    def __init__(
        self, command: str, flags: Callable[[int], Sequence[str]], port: int, end: Callable[[], None]
    ) -> None:
        """flags: of a process that listens on this port; 0 is any free one, and the same one after the first start.

        end: called when no process will be started again, because of a fault of this class; `failure` says which.
        """
        self._command = command
        self.failure: str | None = None
        self._end = end
        self._flags = flags
        self._port = port
        self._child: DoorChild | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Start the first one. Return the text after its `ready`; ConfigError when it does not get ready."""
        said = await self._started()
        _, _, port = said.split()[0].rpartition(":")
        self._port = int(port)
        self._keeping = watched(self._keep(), f"gantry-{self._command}", self._kept)
        return said

    async def stop(self) -> None:
        """Stop the present one, and start no other."""
        if self._keeping is not None:
            await cancelled([self._keeping])
        if self._child is not None:
            await self._child.stop()

    def _kept(self, error: BaseException | None) -> None:
        self.failure = f"{_NAMES[self._command]} is not watched any more"
        log.error("%s", self.failure, exc_info=error)
        self._end()

    async def _started(self) -> str:
        self._child = DoorChild(self._command, self._flags(self._port))
        return await self._child.start()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        name = _NAMES[self._command]
        pause_s = _PAUSE_FIRST_S
        while True:
            assert self._child is not None, "start() has made the first one"
            began_at = loop.time()
            why = f"ended with {await self._child.wait()}"
            if loop.time() - began_at >= _LONG_S:
                pause_s = _PAUSE_FIRST_S
            while True:
                log.error("%s %s; it is started again in %g s, the broker goes on", name, why, pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(_PAUSE_LAST_S, 2 * pause_s)
                try:
                    log.warning("%s serves again: %s", name, await self._started())
                    break
                except (ConfigError, OSError) as error:
                    why = f"did not start ({error})"


def end_with_parent(end: Callable[[], None]) -> None:
    """Call `end` when the process that started this one as its child is gone; nothing happens in any other process."""
    if CHILD not in os.environ:
        return
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(sys.stdin.fileno(), 1):
            loop.remove_reader(sys.stdin.fileno())
            end()

    loop.add_reader(sys.stdin.fileno(), readable)
