"""The proxy of a local cluster without network namespaces: passes bytes on, except where a connection is cut.

A cut connection behaves like a network cable that is unplugged.  Sent bytes wait, connections stay open, new ones are
accepted but not passed on, and everything continues when the cut ends.  Nothing is refused, as with a dead switch.
Each direction is cut separately; a new connection needs both.

The wanted cuts are in `local.json`; the proxy writes the cuts that are in effect to `wires.json`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine

from gantry.errors import ConfigError, GantryError
from gantry.local.cuts import Cuts, Way
from gantry.local.folder import Folder
from gantry.local.layout import Wire

log = logging.getLogger(__name__)
_LOOK_S = 0.05
_PIECE_BYTES = 1 << 18
_CONNECT_S = 5.0
_CONNECTIONS_MAX = 10_000


class Wires:
    """Call start() and stop() once each."""

    def __init__(self, folder: Folder) -> None:
        self.failure: str | None = None
        self._folder = folder
        self._cuts = Cuts()
        self._whole = asyncio.Condition()
        self._servers: list[asyncio.Server] = []
        self._passing: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen on every address, and apply the cuts. ConfigError when an address cannot be used."""
        await self._look()
        for wire in self._folder.load().layout.wires():
            host, port = wire.listen
            try:
                self._servers.append(await asyncio.start_server(self._taker(wire), host, port))
            except OSError as error:
                raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        self._looking = asyncio.ensure_future(self._keep_looking())

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        if self._looking is not None:
            self._looking.cancel()
        for server in self._servers:
            server.close()
        for task in list(self._passing):
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._look()
            except GantryError as error:
                log.warning("the cuts cannot be read: %s", error)

    async def _look(self) -> None:
        wanted = self._folder.load().cuts
        if wanted != self._cuts or not self._folder.carried_out.exists():
            self._cuts = wanted
            async with self._whole:
                self._whole.notify_all()
            self._folder.say_carried_out(wanted)

    async def _until_whole(self, *ways: Way) -> None:
        if any(map(self._cuts.is_cut, ways)):
            async with self._whole:
                await self._whole.wait_for(lambda: not any(map(self._cuts.is_cut, ways)))

    def _taker(self, wire: Wire) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]:
        async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            if len(self._passing) >= _CONNECTIONS_MAX:
                writer.close()
                return
            self._passing.add(task)
            try:
                await self._connect(wire, reader, writer)
            finally:
                self._passing.discard(task)
                writer.close()

        return taken

    async def _connect(self, wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._until_whole(wire.way, wire.way.back)
        try:
            async with asyncio.timeout(_CONNECT_S):
                far_reader, far_writer = await asyncio.open_connection(*wire.target)
        except (OSError, TimeoutError):
            return  # no process listens there: the connection of the client is closed
        try:
            passing = [
                self._pass_on(wire.way, reader, far_writer),
                self._pass_on(wire.way.back, far_reader, writer),
            ]
            tasks = [asyncio.ensure_future(each) for each in passing]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            far_writer.close()

    async def _pass_on(self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(_PIECE_BYTES):
                await self._until_whole(way)
                writer.write(piece)
                await writer.drain()
            await self._until_whole(way)
