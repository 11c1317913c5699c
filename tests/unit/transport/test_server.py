"""Listeners, limits, silence and the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Callable

import pytest

from gantry.errors import ConfigError
from gantry.leaves import frames
from gantry.transport import descriptors
from gantry.transport.connection import Connection
from gantry.transport.limits import ConnectionLimits
from gantry.transport.server import RemotingServer
from gantry.transport.silence import unsent_by_system
from gantry.wire.command import Request
from testkit.nodescriptor import no_descriptor_left
from testkit.patience import HANG_S
from testkit.turning import until

pytestmark = pytest.mark.usefixtures("way")


def echo(connection: Connection, requests: list[Request]) -> None:
    for request in requests:
        connection.write(frames.encode(frames.Command(0, opaque=request.opaque, flag=1)))


async def ends(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), HANG_S)
    except ConnectionResetError:
        return b""


async def test_every_listener_serves_the_same() -> None:
    server = RemotingServer(echo)
    ports = [await server.start("127.0.0.1", 0) for _ in range(2)]
    assert [port for _, port in server.addresses] == ports
    for port in ports:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frames.encode(frames.Command(28, opaque=7)))
        assert len(await asyncio.wait_for(reader.readexactly(4), HANG_S)) == 4
        writer.close()
    await server.close()


async def test_a_port_in_use_is_a_configuration_error_that_names_it() -> None:
    server = RemotingServer(echo)
    port = await server.start("127.0.0.1", 0)
    with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
        await RemotingServer(echo).start("127.0.0.1", port)
    await server.close()


async def test_connections_come_and_go_with_notice() -> None:
    news: asyncio.Queue[str] = asyncio.Queue()
    server = RemotingServer(echo, lambda _: news.put_nowait("came"), lambda _: news.put_nowait("went"))
    port = await server.start("127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await asyncio.wait_for(news.get(), HANG_S) == "came"
    assert len(server.connections) == 1
    writer.close()
    assert await asyncio.wait_for(news.get(), HANG_S) == "went"
    assert not server.connections
    await server.close()


async def test_a_silent_connection_is_closed() -> None:
    gone: asyncio.Queue[Connection] = asyncio.Queue()
    server = RemotingServer(echo, on_close=gone.put_nowait, limits=ConnectionLimits(idle_s=0.05))
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start("127.0.0.1", 0))
    assert await ends(reader) == b""
    assert "silent" in (await asyncio.wait_for(gone.get(), HANG_S)).close_reason
    writer.close()
    await server.close()


def small_window() -> socket.socket:
    """A socket whose system takes little of what a program does not read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
    return sock


def answer_at_length(connection: Connection, requests: list[Request]) -> None:
    connection.write(bytes(16 << 20))


async def test_a_client_that_reads_a_long_answer_slowly_is_not_silent() -> None:
    """It takes so little that the output stays above the limit at which reading goes on."""
    server = RemotingServer(answer_at_length, limits=ConnectionLimits(idle_s=1000.0))
    with small_window() as sock:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", await server.start("127.0.0.1", 0)))
        reader, writer = await asyncio.open_connection(sock=sock, limit=8 << 10)
        writer.write(frames.encode(frames.Command(28)))
        await until(lambda: any(one.has_output for one in server.connections))
        (connection,) = server.connections
        now = connection.last_active
        for _ in range(4):
            server.close_silent(now := now + 600.0)
            unsent = unsent_by_system(connection.descriptor) + connection.kept_bytes
            while unsent_by_system(connection.descriptor) + connection.kept_bytes >= unsent:
                assert await asyncio.wait_for(reader.read(8 << 10), HANG_S)
            assert not connection.is_writable, "the answer is too short for this test"
            server.close_silent(now := now + 600.0)
            assert not connection.closed, connection.close_reason
        async with asyncio.timeout(HANG_S):
            while not connection.closed:  # its system may take a little more of what it does not read
                await asyncio.sleep(0)
                server.close_silent(now := now + 1200.0)
        assert "silent" in connection.close_reason, "it takes nothing any more"
        writer.close()
    await server.close()


async def test_who_is_not_read_from_is_not_silent() -> None:
    """A request of it waits for something of ours: a registration for its turn."""
    server = RemotingServer(echo, limits=ConnectionLimits(idle_s=1000.0))
    _, writer = await asyncio.open_connection("127.0.0.1", await server.start("127.0.0.1", 0))
    await until(lambda: bool(server.connections))
    (connection,) = server.connections
    connection.pause_reading("a registration")
    server.close_silent(connection.last_active + 2000.0)
    assert not connection.closed
    connection.resume_reading("a registration")
    server.close_silent(connection.last_active + 2000.0)
    assert "silent" in connection.close_reason
    writer.close()
    await server.close()


async def test_connections_over_the_limit_are_refused_and_the_others_served() -> None:
    server = RemotingServer(echo, limits=ConnectionLimits(connections_max=1))
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frames.encode(frames.Command(28)))
    await asyncio.wait_for(reader.readexactly(4), HANG_S)
    other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
    assert await ends(other_reader) == b""
    assert server.refused == 1
    assert len(server.connections) == 1
    writer.close()
    other_writer.close()
    await server.close()


async def test_a_server_is_reached_also_when_files_take_half_of_the_descriptors() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def play(files: contextlib.ExitStack) -> None:
        server = RemotingServer(echo)
        port = await server.start("127.0.0.1", 0)
        descriptor = -1
        while descriptor < descriptors.limit() // 2:
            descriptor = os.open("/dev/null", os.O_RDONLY)
            files.callback(os.close, descriptor)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frames.encode(frames.Command(28)))
        assert len(await asyncio.wait_for(reader.readexactly(4), HANG_S)) == 4
        writer.close()
        await server.close()

    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        highest = max(map(int, os.listdir("/proc/self/fd")))  # other tests may have left many
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * highest + 1024, before[1]), before[1]))
        await play(stack)


@pytest.mark.parametrize("on", [asyncio.new_event_loop, pytest.importorskip("uvloop").new_event_loop])
def test_a_listener_that_could_not_accept_serves_when_there_are_descriptors_again(
    on: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def play() -> None:
        loop, tried = asyncio.get_running_loop(), asyncio.Event()
        loop.set_exception_handler(lambda *_: tried.set())  # asyncio's loop tells of it there
        server = RemotingServer(echo)
        port = await server.start("127.0.0.1", 0)
        with contextlib.closing(socket.socket()) as early:
            early.setblocking(False)
            with no_descriptor_left():
                await loop.sock_connect(early, ("127.0.0.1", port))
                hearing = asyncio.ensure_future(loop.sock_recv(early, 1))  # uvloop closes the connection
                telling = asyncio.ensure_future(tried.wait())
                await asyncio.wait({hearing, telling}, return_when=asyncio.FIRST_COMPLETED)
            for waiting in (hearing, telling):
                waiting.cancel()
            await asyncio.gather(hearing, telling, return_exceptions=True)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frames.encode(frames.Command(28)))
        assert len(await reader.readexactly(4)) == 4
        writer.close()
        await server.close()

    with asyncio.Runner(loop_factory=on) as runner:
        runner.run(asyncio.wait_for(play(), HANG_S))


async def test_closing_ends_listeners_and_connections_even_those_that_do_not_read() -> None:
    connected: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
    server = RemotingServer(echo, connected.set_result)
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.transport.pause_reading()
    (await asyncio.wait_for(connected, HANG_S)).write(bytes(16 << 20))
    await asyncio.wait_for(server.close(), HANG_S)
    assert not server.connections
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    await ends(reader)
