"""One connection over a real socket: batches, bad bytes, slow peers, questions in both directions."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gantry.errors import OutcomeUnknownError, UnreachableError
from gantry.leaves import frames
from gantry.transport.connection import Connection
from gantry.transport.limits import ConnectionLimits
from gantry.transport.readbuffer import ReadBuffer
from gantry.transport.server import RemotingServer
from gantry.wire.command import Request
from testkit.patience import HANG_S

pytestmark = pytest.mark.usefixtures("way")


class Server:
    """Remembers what came and answers with what `reply` says."""

    def __init__(self) -> None:
        self.batches: list[list[Request]] = []
        self.connection: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self.lost = asyncio.Event()
        self.arrived = asyncio.Event()
        self.reply = lambda connection, request: connection.write(frames.encode(answer(request)))

    def on_connect(self, connection: Connection) -> None:
        self.connection.set_result(connection)
        connection.closed_listeners.append(lambda _: self.lost.set())

    def on_requests(self, connection: Connection, requests: list[Request]) -> None:
        self.batches.append(requests)
        for request in requests:
            self.reply(connection, request)
        self.arrived.set()


def answer(request: Request) -> frames.Command:
    return frames.Command(0, opaque=request.opaque, flag=1)


def question(opaque: int, body: bytes = b"") -> bytes:
    return frames.encode(frames.Command(28, opaque=opaque, body=body))


@asynccontextmanager
async def served(
    limits: ConnectionLimits | None = None, buffer: ReadBuffer | None = None
) -> AsyncIterator[tuple[Server, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A server for one connection, and a plain stream that plays the client."""
    server = Server()
    listener = RemotingServer(server.on_requests, server.on_connect, limits=limits, buffer=buffer)
    reader, writer = await asyncio.open_connection("127.0.0.1", await listener.start("127.0.0.1", 0), limit=1 << 25)
    try:
        await asyncio.wait_for(server.connection, HANG_S)
        yield server, reader, writer
    finally:
        writer.close()
        await asyncio.wait_for(server.lost.wait(), HANG_S)
        await listener.close()


async def read_frame(reader: asyncio.StreamReader) -> frames.Command:
    head = await asyncio.wait_for(reader.readexactly(4), HANG_S)
    data = head + await asyncio.wait_for(reader.readexactly(int.from_bytes(head, "big")), HANG_S)
    used, commands = frames.decode(data, 0, len(data))
    assert used == len(data)
    return commands[0]


async def is_closed_by_the_server(reader: asyncio.StreamReader) -> bool:
    try:
        while await asyncio.wait_for(reader.read(1 << 16), HANG_S):
            pass
    except ConnectionResetError:
        pass
    return True


async def test_a_batch_is_handed_over_in_one_call_and_answered_in_one_write() -> None:
    async with served() as (server, reader, writer):
        connection = server.connection.result()
        writes: list[int] = []
        transport = connection._transport
        assert transport is not None

        class Counting:
            def __getattr__(self, name: str) -> object:
                return getattr(transport, name)

            def write(self, data: bytes) -> None:
                writes.append(len(data))
                transport.write(data)

        connection._transport = Counting()  # type: ignore[assignment]
        writer.write(b"".join(question(number) for number in range(20)))
        assert [(await read_frame(reader)).opaque for _ in range(20)] == list(range(20))
        assert len(writes) == len(server.batches)


@pytest.mark.parametrize("piece", [1, 7, 4096])
async def test_frames_that_come_in_pieces_are_put_together(piece: int) -> None:
    async with served() as (server, reader, writer):
        data = b"".join(question(number, bytes([number]) * 50) for number in range(4))
        for at in range(0, len(data), piece):
            writer.write(data[at : at + piece])
            await writer.drain()
            await asyncio.sleep(0)
        assert [(await read_frame(reader)).opaque for _ in range(4)] == [0, 1, 2, 3]
        assert [request.body for batch in server.batches for request in batch] == [
            bytes([number]) * 50 for number in range(4)
        ]


async def test_a_frame_larger_than_the_read_buffer_arrives_whole_and_its_memory_is_given_back() -> None:
    buffer = ReadBuffer(64 << 10)
    async with served(buffer=buffer) as (server, reader, writer):
        body = bytes(range(256)) * 12_000  # 3 MB
        writer.write(question(1, body) + question(2))
        assert [(await read_frame(reader)).opaque for _ in range(2)] == [1, 2]
        assert server.batches[0][0].body == body
        assert buffer.partial_bytes == 0


@pytest.mark.parametrize(
    "bad",
    [
        struct.pack(">i", -1) + b"x" * 20,
        struct.pack(">i", 3) + b"x" * 20,
        struct.pack(">i", 17 << 20) + b"x" * 20,
        struct.pack(">ii", 20, 50) + b"x" * 16,
        struct.pack(">ii", 20, 16) + b"\xff" * 16,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["negative", "too short", "oversized", "header longer than frame", "no JSON", "HTTP"],
)
async def test_bytes_that_are_no_frames_close_this_connection_and_no_other(bad: bytes) -> None:
    async with served() as (_, good_reader, good_writer), served() as (server, reader, writer):
        writer.write(bad)
        assert await is_closed_by_the_server(reader)
        assert "protocol error" in server.connection.result().close_reason
        good_writer.write(question(5))
        assert (await read_frame(good_reader)).opaque == 5


async def test_a_frame_cut_off_by_the_end_of_the_connection_is_dropped_and_its_bytes_given_back() -> None:
    buffer = ReadBuffer(4096)
    async with served(buffer=buffer) as (server, _, writer):
        writer.write(question(1, bytes(100_000))[:-1])
        await writer.drain()
        writer.close()
        await asyncio.wait_for(server.lost.wait(), HANG_S)
        assert server.batches == []
        assert buffer.partial_bytes == 0


async def test_unfinished_frames_over_the_common_budget_close_the_one_that_keeps_most() -> None:
    buffer = ReadBuffer(4096, partial_bytes_max=1 << 20)
    async with served(buffer=buffer) as (server, reader, writer):
        writer.write(question(1, bytes(4 << 20))[:-1])
        assert await is_closed_by_the_server(reader)
        assert "budget" in server.connection.result().close_reason
        assert buffer.partial_bytes == 0


async def test_whole_frames_before_one_over_the_budget_are_handed_over() -> None:
    buffer = ReadBuffer(64 << 10, partial_bytes_max=1 << 10)
    async with served(buffer=buffer) as (server, reader, writer):
        writer.write(question(1) + question(2) + question(3, bytes(8 << 10))[:4096])  # one read
        assert [(await read_frame(reader)).opaque for _ in range(2)] == [1, 2]
        assert await is_closed_by_the_server(reader)
        assert [len(batch) for batch in server.batches] == [2]
        assert "budget" in server.connection.result().close_reason and buffer.partial_bytes == 0


async def test_over_the_common_budget_the_one_that_keeps_most_goes_and_not_the_one_that_asks() -> None:
    buffer = ReadBuffer(4096, partial_bytes_max=1 << 20)
    async with (
        served(buffer=buffer) as (hog, hog_reader, hog_writer),
        served(buffer=buffer) as (honest, reader, writer),
    ):
        unfinished = question(1, bytes((1 << 20) - 200))
        hog_writer.write(unfinished[:-1])
        for _ in range(100_000):
            if buffer.partial_bytes == len(unfinished):
                break
            await asyncio.sleep(0)
        writer.write(question(2, bytes(600 << 10)))
        assert (await read_frame(reader)).opaque == 2
        assert await is_closed_by_the_server(hog_reader)
        assert "the most of all" in hog.connection.result().close_reason
        assert not honest.connection.result().closed and buffer.partial_bytes == 0


async def test_a_peer_that_never_reads_is_no_longer_read_and_cut_off_at_the_hard_limit() -> None:
    limits = ConnectionLimits(output_bytes_high=64 << 10, output_bytes_max=1 << 20)
    async with served(limits) as (server, _, writer):
        connection = server.connection.result()
        connection_socket = writer.get_extra_info("socket")
        connection_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.transport.pause_reading()
        chunk = bytes(256 << 10)
        while connection.is_writable:
            connection.write(chunk)
        assert not connection.closed
        for _ in range(40):
            connection.write(chunk)
        assert connection.closed
        assert "does not read" in connection.close_reason
        await asyncio.wait_for(server.lost.wait(), HANG_S)


async def test_a_slow_peer_is_read_again_when_it_has_taken_its_answers() -> None:
    limits = ConnectionLimits(output_bytes_high=64 << 10)
    async with served(limits) as (server, reader, writer):
        connection = server.connection.result()
        writer.transport.pause_reading()
        sent = 0
        while connection.is_writable:
            connection.write(bytes(256 << 10))
            sent += 256 << 10
        writer.write(question(9))
        writer.transport.resume_reading()
        await asyncio.wait_for(reader.readexactly(sent), HANG_S)
        assert (await read_frame(reader)).opaque == 9


async def test_close_lets_the_output_drain() -> None:
    async with served() as (server, reader, _):
        connection = server.connection.result()
        connection.write(bytes(8 << 20))
        connection.close("enough")
        connection.write(b"never sent")
        assert len(await asyncio.wait_for(reader.read(), HANG_S)) == 8 << 20
        assert connection.close_reason == "enough"


async def test_a_handler_may_close_after_its_answer_and_the_answer_leaves_first() -> None:
    async with served() as (server, reader, writer):

        def answer_and_close(connection: Connection, request: Request) -> None:
            connection.write(frames.encode(answer(request)))
            connection.close("done")

        server.reply = answer_and_close
        writer.write(question(3))
        assert (await read_frame(reader)).opaque == 3
        assert await is_closed_by_the_server(reader)


async def test_large_pieces_and_small_ones_keep_their_order() -> None:
    async with served() as (server, reader, writer):
        pieces = [b"head", memoryview(bytes(300_000)), b"tail"]
        server.reply = lambda connection, request: connection.writelines(pieces)
        writer.write(question(1))
        data = await asyncio.wait_for(reader.readexactly(300_008), HANG_S)
        assert (data[:4], data[-4:]) == (b"head", b"tail")


async def test_both_sides_may_ask_with_the_same_number() -> None:
    async with served() as (server, reader, writer):
        asked = server.connection.result().invoke(frames.Command(39), HANG_S)
        request = await read_frame(reader)
        writer.write(question(request.opaque))  # theirs, with the number of ours
        writer.write(frames.encode(frames.Command(0, opaque=request.opaque, flag=1, body=b"yes")))
        assert (await asyncio.wait_for(asked, HANG_S)).body == b"yes"
        assert (await read_frame(reader)).opaque == request.opaque
        assert len(server.batches) == 1


async def test_a_question_without_an_answer_has_an_unknown_outcome() -> None:
    async with served() as (server, reader, writer):
        connection = server.connection.result()
        with pytest.raises(OutcomeUnknownError, match="no answer"):
            await connection.invoke(frames.Command(39), 0.01)
        request = await read_frame(reader)
        writer.write(frames.encode(frames.Command(0, opaque=request.opaque, flag=1)))  # late: dropped
        asked = connection.invoke(frames.Command(39), HANG_S)
        await read_frame(reader)
        writer.close()
        with pytest.raises(OutcomeUnknownError, match="connection gone"):
            await asked
        assert server.batches == []


async def test_a_question_that_was_never_sent_says_so() -> None:
    async with served(ConnectionLimits(pending_max=1)) as (server, _, _writer):
        connection = server.connection.result()
        first = connection.invoke(frames.Command(39), HANG_S)
        with pytest.raises(UnreachableError, match="wait for an answer"):
            await connection.invoke(frames.Command(39), HANG_S)
        connection.close("bye")
        with pytest.raises(UnreachableError, match="bye"):
            await connection.invoke(frames.Command(39), HANG_S)
        with pytest.raises(OutcomeUnknownError):
            await first


async def test_a_connection_knows_both_ends() -> None:
    async with served() as (server, _, writer):
        connection = server.connection.result()
        host, port = writer.get_extra_info("sockname")
        assert connection.peer == f"{host}:{port}"
        assert connection.born_host == bytes([127, 0, 0, 1]) + port.to_bytes(4, "big")
        local_port = writer.get_extra_info("peername")[1]
        assert connection.local_host == bytes([127, 0, 0, 1]) + local_port.to_bytes(4, "big")


async def test_reading_stops_until_everybody_who_asked_lets_go() -> None:
    async with served() as (server, reader, writer):
        connection = server.connection.result()
        connection.pause_reading("disk")
        connection.pause_reading("memory")
        writer.write(question(1))
        await writer.drain()
        connection.resume_reading("disk")
        connection.resume_reading("disk")
        for _ in range(5):
            await asyncio.sleep(0)
        assert server.batches == []
        connection.resume_reading("memory")
        assert (await read_frame(reader)).opaque == 1


async def test_what_is_gathered_leaves_at_the_end_also_of_the_connection() -> None:
    async with served() as (server, reader, _):
        connection = await server.connection
        for opaque, finish in ((1, connection.uncork), (2, lambda: connection.close("goodbye"))):
            assert connection.cork() and not connection.cork()
            connection.write(question(opaque))
            assert not connection.has_output
            finish()
            assert (await read_frame(reader)).opaque == opaque
