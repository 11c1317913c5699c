from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gantry.local.cuts import OUTSIDE, Cuts, Way
from gantry.local.folder import Folder
from gantry.local.layout import Layout, Links, Who
from gantry.local.wires import Wires
from testkit.localnet import free_layout
from testkit.patience import HANG_S
from testkit.turning import until

ONE, OTHER = Who(0, 0), Who(0, 1)


class Echo:
    """A member that answers what it is sent."""

    def __init__(self, layout: Layout, who: Who) -> None:
        self.where = (layout.bound(who), layout.ports.broker)
        self.server: asyncio.Server | None = None
        self.heard = b""

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._taken, *self.where)

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(1000):
            self.heard += piece
            writer.write(piece)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def wired(folder: Path) -> AsyncIterator[tuple[Folder, Layout, Echo]]:
    """Start the wires of a cluster of which two members run; yield also what answers behind the first."""
    layout = free_layout(Links.PROXY)
    made = Folder(folder)
    made.make(layout)
    echoes, wires = [Echo(layout, who) for who in (ONE, OTHER)], Wires(made)
    for echo in echoes:
        await echo.start()
    await wires.start()
    try:
        async with asyncio.timeout(HANG_S):
            yield made, layout, echoes[0]
    finally:
        await wires.stop()
        for echo in echoes:
            assert echo.server is not None
            echo.server.close()


async def answered(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], said: bytes) -> bytes:
    reader, writer = connection
    writer.write(said)
    return await reader.readexactly(len(said))


async def carried_out(folder: Folder, *names: str, ways: tuple[Way, ...] = ()) -> None:
    cuts = Cuts(frozenset(names), frozenset(ways))
    folder.set_cuts(cuts)
    await until(lambda: folder.are_cut() == cuts)


async def test_bytes_pass_both_ways_and_an_end_passes_too(tmp_path: Path) -> None:
    async with wired(tmp_path) as (_, layout, _):
        reader, writer = await asyncio.open_connection(layout.address(ONE), layout.ports.broker)
        assert await answered((reader, writer), b"hello") == b"hello"
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


async def test_a_cut_wire_is_silent_and_goes_on_when_it_is_whole(tmp_path: Path) -> None:
    async with wired(tmp_path) as (folder, layout, _):
        cut = await asyncio.open_connection(layout.address(ONE), layout.ports.broker)
        whole = await asyncio.open_connection(layout.address(OTHER), layout.ports.broker)
        assert await answered(cut, b"before") == b"before"
        await carried_out(folder, ONE.name)
        waiting = asyncio.ensure_future(answered(cut, b"meanwhile"))
        later = await asyncio.open_connection(layout.address(ONE), layout.ports.broker)
        knocking = asyncio.ensure_future(answered(later, b"knock"))
        for number in range(20):
            assert await answered(whole, b"%d" % number) == b"%d" % number
        assert not waiting.done() and not knocking.done()
        await carried_out(folder)
        assert await waiting == b"meanwhile" and await knocking == b"knock"
        for _, writer in (cut, whole, later):
            writer.close()


@pytest.mark.parametrize("is_there", [True, False], ids=["there", "back"])
async def test_a_way_that_is_cut_loses_one_direction_and_lets_nobody_connect(tmp_path: Path, is_there: bool) -> None:
    there = Way(OUTSIDE, ONE.name)
    async with wired(tmp_path) as (folder, layout, first):
        whole = await asyncio.open_connection(layout.address(ONE), layout.ports.broker)
        assert await answered(whole, b"before ") == b"before "
        await carried_out(folder, ways=(there if is_there else there.back,))
        waiting = asyncio.ensure_future(answered(whole, b"meanwhile"))
        later = await asyncio.open_connection(layout.address(ONE), layout.ports.broker)
        knocking = asyncio.ensure_future(answered(later, b"knock"))
        other = await asyncio.open_connection(layout.address(OTHER), layout.ports.broker)
        for number in range(20):
            assert await answered(other, b"%d" % number) == b"%d" % number
        if not is_there:
            await until(lambda: first.heard == b"before meanwhile")
        assert first.heard == (b"before " if is_there else b"before meanwhile")
        assert not waiting.done() and not knocking.done()
        await carried_out(folder)
        assert await waiting == b"meanwhile" and await knocking == b"knock"
        for _, writer in (whole, later, other):
            writer.close()


async def test_where_nobody_listens_the_connection_ends(tmp_path: Path) -> None:
    async with wired(tmp_path) as (_, layout, _):
        reader, writer = await asyncio.open_connection(layout.address(Who(0, 2)), layout.ports.broker)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()


def test_a_layout_for_tests_is_free(tmp_path: Path) -> None:
    for host, port in free_layout(Links.DIRECT).listeners():
        with socket.socket() as probe:
            probe.bind((host, port))
