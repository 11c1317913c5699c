"""Requests that wait for their turn or their reader, and clients that do not read, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from gantry.leaves import frames
from gantry.transport.connection import Connection
from gantry.transport.limits import ConnectionLimits
from gantry.transport.server import RemotingServer
from gantry.wire.command import Request
from testkit.patience import HANG_S
from testkit.turning import until


@asynccontextmanager
async def served(
    limits: ConnectionLimits,
) -> AsyncIterator[tuple[Connection, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A server for one connection, and a plain stream that plays the client."""
    server = RemotingServer(answer_at_length, limits=limits)
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start("127.0.0.1", 0))
    await until(lambda: bool(server.connections))
    try:
        yield next(iter(server.connections)), reader, writer
    finally:
        writer.close()
        await server.close()


def question(opaque: int) -> bytes:
    return frames.encode(frames.Command(28, opaque=opaque))


async def read_frame(reader: asyncio.StreamReader) -> frames.Command:
    head = await asyncio.wait_for(reader.readexactly(4), HANG_S)
    data = head + await asyncio.wait_for(reader.readexactly(int.from_bytes(head, "big")), HANG_S)
    _, (command,) = frames.decode(data, 0, len(data))
    assert isinstance(command, frames.Command)
    return command


def answer_at_length(connection: Connection, requests: list[Request]) -> None:
    """Answer as handlers do: until the peer has to read, or other connections have their turn."""
    for nth, request in enumerate(requests):
        if nth and connection.must_wait():
            connection.postpone(requests[nth:])
            return
        connection.write(frames.encode(frames.Command(0, opaque=request.opaque, flag=1, body=bytes(32 << 10))))


async def test_requests_of_one_read_wait_while_their_peer_does_not_read_its_answers() -> None:
    """Ten thousand requests come with one read, and all their answers would be in memory before any of them leaves."""
    limits = ConnectionLimits(output_bytes_high=64 << 10, output_bytes_max=1 << 20)
    async with served(limits) as (connection, reader, writer):
        writer.transport.pause_reading()
        writer.write(b"".join(question(number) for number in range(500)))
        await until(lambda: connection.has_postponed and not connection.is_writable)
        assert not connection.closed and connection.kept_bytes < 1 << 20
        writer.transport.resume_reading()
        assert [(await read_frame(reader)).opaque for _ in range(500)] == list(range(500))
        assert not connection.has_postponed and connection.is_writable
        writer.write(question(7))
        assert (await read_frame(reader)).opaque == 7, "it is read from again"


async def test_a_fault_in_what_was_put_off_ends_its_connection() -> None:
    """Else nothing would ever be read from it again, and its client would wait."""

    def fail_later(connection: Connection, requests: list[Request]) -> None:
        if len(requests) == 1:
            raise ValueError("a fault of a handler")
        connection.postpone(requests[1:])

    loop = asyncio.get_running_loop()
    told: list[object] = []
    loop.set_exception_handler(lambda _, context: told.append(context.get("exception")))
    server = RemotingServer(fail_later)
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start("127.0.0.1", 0))
    writer.write(question(1) + question(2))
    await until(lambda: bool(told))
    assert all(connection.closed for connection in server.connections)
    with suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), HANG_S) == b""
    assert [str(one) for one in told] == ["a fault of a handler"]
    writer.close()
    await server.close()


async def test_connections_held_up_by_this_side_count_as_heard_when_it_reads_again() -> None:
    async with served(ConnectionLimits()) as (connection, _, _):
        connection.pause_reading("the disk is late")
        assert connection.is_held_up
        connection.last_active -= 100
        before_s = connection.last_active
        connection.resume_reading("the disk is late")
        assert not connection.is_held_up and connection.last_active >= before_s + 100
        connection.pause_writing()
        assert not connection.is_held_up, "its peer does not read, so it is the one to act"
        connection.resume_writing()


async def test_one_request_of_each_connection_comes_before_the_rest_of_what_one_has_sent() -> None:
    """The time of the turn is over at once, so each connection is served one request at a time."""
    served_by: list[Connection] = []

    def count(connection: Connection, requests: list[Request]) -> None:
        served_by.append(connection)
        answer_at_length(connection, requests)

    server = RemotingServer(count)
    port = await server.start("127.0.0.1", 0)
    busy, busy_writer = await asyncio.open_connection("127.0.0.1", port)
    await until(lambda: len(server.connections) == 1)
    (connection,) = server.connections
    assert connection._shared is not None
    connection._shared.time._work_s = 0.0
    modest, modest_writer = await asyncio.open_connection("127.0.0.1", port)
    busy_writer.write(b"".join(question(number) for number in range(200)))
    await until(lambda: connection.has_postponed)
    modest_writer.write(question(1))
    assert (await read_frame(modest)).opaque == 1
    assert [(await read_frame(busy)).opaque for _ in range(200)] == list(range(200))
    first = next(nth for nth, one in enumerate(served_by) if one is not connection)
    assert first < len(served_by) - 1 and served_by.count(connection) >= 100
    for writer in (busy_writer, modest_writer):
        writer.close()
    await server.close()


async def test_requests_that_wait_are_dropped_with_their_connection() -> None:
    async with served(ConnectionLimits(output_bytes_high=64 << 10)) as (connection, _, writer):
        writer.transport.pause_reading()
        writer.write(b"".join(question(number) for number in range(500)))
        await until(lambda: connection.has_postponed and not connection.is_writable)
        connection.abort("enough")
        assert not connection.has_postponed and connection.kept_bytes == 0
        connection._go_on()
        assert not connection.has_postponed


async def test_peers_that_do_not_read_lose_their_connections_when_all_together_keep_too_much() -> None:
    limits = ConnectionLimits(output_bytes_high=64 << 10, output_bytes_max=1 << 20)  # so 4 MiB together
    server = RemotingServer(answer_at_length, limits=limits)
    port = await server.start("127.0.0.1", 0)
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
    await until(lambda: len(server.connections) == 8)
    connections = list(server.connections)
    for _, writer in clients:
        writer.transport.pause_reading()
    for connection in connections[1:]:
        for _ in range(200):
            if connection.kept_bytes < 800 << 10:
                connection.write(bytes(64 << 10))
                await asyncio.sleep(0)
    await until(lambda: any(one.closed for one in connections))
    closed = [one for one in connections if one.closed]
    assert "the most of all" in closed[0].close_reason and len(closed) < 7
    assert sum(one.kept_bytes for one in connections) <= 4 << 20
    reader, writer = clients[0]
    writer.transport.resume_reading()
    writer.write(question(1))
    assert (await read_frame(reader)).opaque == 1 and not connections[0].closed
    for _, writer in clients:
        writer.close()
    await server.close()
