"""What clients may do to the listener: those that do not read, and bodies that are too much together."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from gantry.queues import listening
from gantry.queues.listening import BodiesFullError, BodyShare, HttpListener, QueueConnection, body_of
from gantry.transport.fairness import SharedPlaces
from gantry.transport.output import OutputBudget
from gantry.transport.partialbytes import PartialBytes
from testkit.patience import HANG_S
from testkit.turning import until

GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


@asynccontextmanager
async def listener(
    handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
    fail: Callable[[str], None] = pytest.fail,
) -> AsyncIterator[tuple[HttpListener, int]]:
    async def called(request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, QueueConnection)
        connection.called()
        try:
            return await handle(request)
        finally:
            connection.answered()

    made = HttpListener(called, lambda status, text: web.Response(status=status))
    port = await made.start("127.0.0.1", 0, fail)
    try:
        yield made, port
    finally:
        await made.stop(0.1)


async def test_the_server_ends_when_slow_clients_are_not_looked_for_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_SWEEP_S", 0.0)
    reasons: list[str] = []

    def broken(_: QueueConnection, now: float) -> bool:
        raise AssertionError("a fault of ours")

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response()

    monkeypatch.setattr(QueueConnection, "has_been_slow", broken)
    async with listener(handle, reasons.append) as (_, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: reasons)
        writer.close()
    assert "a fault of ours" in reasons[0]


async def test_who_does_not_read_its_answer_is_closed_and_who_reads_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "ANSWER_S", 3.0)
    monkeypatch.setattr(listening, "_SWEEP_S", 0.05)
    large = bytes(16 << 20)  # more than the system keeps for a connection

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=large)

    async with listener(handle) as (made, port):
        reads, other = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        _, deaf = await asyncio.open_connection("127.0.0.1", port, limit=1)
        for writer in (other, deaf):
            writer.write(GET)
        head = await reads.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert await reads.readexactly(len(large)) == large
        await until(lambda: len(made.open) == 1 and made.slow == 1)
        other.write(GET)
        assert (await reads.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert await reads.readexactly(len(large)) == large
        for writer in (other, deaf):
            writer.close()


async def test_bodies_of_all_calls_together_are_bounded() -> None:
    room, release = SharedPlaces(400_000), asyncio.Event()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request.protocol, QueueConnection)
        share = BodyShare(room, request.protocol)
        try:
            body = await body_of(request, False, share)
            await release.wait()
            return web.Response(body=body)
        except BodiesFullError:
            return web.Response(status=503)
        finally:
            share.end()

    async with listener(handle) as (_, port):
        ends = [await connect(port), await connect(port), await connect(port, "127.0.0.2")]
        for (_, writer), length in zip(ends, (60_000, 300_000, 60_000), strict=True):
            before = room.taken
            writer.write(b"PUT / HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % length + bytes(length))
            if length == 60_000:
                await until(lambda before=before: room.taken == before + 60_000)
            else:
                assert (await ends[1][0].readuntil(b"\r\n")).startswith(b"HTTP/1.1 503 ")
                await until(lambda: room.taken == 60_000)
        release.set()
        for reader, _ in (ends[0], ends[2]):
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
        await until(lambda: room.taken == 0)
        for _, writer in ends:
            writer.close()


async def connect(
    port: int, host: str = "127.0.0.1", limit: int = 1 << 16
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that calls from an address of its own, and whose system takes little of what it does not read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
    sock.setblocking(False)
    sock.bind((host, 0))
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=sock, limit=limit)


async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether a small request is answered."""
    writer.write(GET)
    try:
        return (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HANG_S)).startswith(b"HTTP/1.1 200 ")
    except (asyncio.IncompleteReadError, ConnectionError):
        return False


async def small(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response()


async def test_a_host_with_half_of_all_connections_gets_no_more_and_others_do() -> None:
    async with listener(small) as (made, port):
        made.places.most = 8
        many = [await connect(port) for _ in range(6)]
        await until(lambda: made.refused == 2)
        assert [await answers(*one) for one in many] == [True] * 4 + [False] * 2
        other = await connect(port, "127.0.0.2")
        assert await answers(*other)
        many[0][1].close()
        await until(lambda: made.places.taken == 4)
        again = await connect(port)
        assert await answers(*again), "a place that was given back"
        for _, writer in (*many, other, again):
            writer.close()
        await until(lambda: not made.open and not made.places.taken)


async def test_heads_that_are_never_whole_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HEAD_BYTES_MAX", 40_000)
    monkeypatch.setattr(listening, "_SWEEP_S", 3600.0)  # none of them is closed for the time that it takes
    line = b"X-Long: " + b"x" * 4000 + b"\r\n"
    begun = b"GET / HTTP/1.1\r\nHost: here\r\n"
    async with listener(small) as (made, port):
        made.heads = PartialBytes(100_000)
        many = [await connect(port) for _ in range(6)]
        for nth, (_, writer) in enumerate(many):
            writer.write(begun + 8 * line)
            await until(lambda nth=nth: made.heads.total + 32_000 * made.slow >= 32_000 * (nth + 1))
        assert made.heads.total <= 100_000 and made.slow == 3
        other = await connect(port, "127.0.0.2")
        other[1].write(begun)
        for _ in range(7):
            other[1].write(line)
        other[1].write(b"\r\n")
        assert (await other[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 "), "it keeps less than their host"
        longest = await connect(port, "127.0.0.3")
        longest[1].write(begun + 15 * line)
        assert not await answers(*longest), "more than one head may have"
        for _, writer in (*many, other, longest):
            writer.close()
        await until(lambda: not made.heads.total)


async def test_what_is_sent_while_a_call_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll of 30 s, and behind it the body of a request that has to wait for its answer."""
    release = asyncio.Event()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        await release.wait()
        return web.Response()

    async with listener(handle) as (made, port):
        _, writer = await connect(port)
        writer.write(GET + b"PUT / HTTP/1.1\r\nHost: here\r\nContent-Length: 4000000\r\n\r\n")
        await until(lambda: any(one.is_calling for one in made.open))
        writer.write(bytes(300_000))
        await until(lambda: made.slow == 1 and not made.open)
        pipelined = await connect(port)
        pipelined[1].write(20 * GET)
        release.set()
        for _ in range(20):
            assert (await pipelined[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        for one in (writer, pipelined[1]):
            one.close()


async def test_who_is_refused_before_its_body_has_come_reads_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_LINGER_S", HANG_S)

    async def refuse(request: web.BaseRequest) -> web.StreamResponse:
        found = web.Response(status=403, body=b"why")
        found.force_close()
        return found

    async with listener(refuse) as (made, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        length = 5 * listening.HEAD_BYTES_MAX
        writer.write(b"PUT / HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % length)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 403 ")
        for _ in range(5):
            writer.write(bytes(length // 5))
            await writer.drain()
        assert await reader.read() == b"why"
        assert not made.slow and not made.heads.total
        writer.close()


async def test_answers_that_are_not_read_are_bounded_and_those_of_the_host_with_most_go() -> None:
    large = bytes(8 << 20)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=large if request.path == "/large" else b"")

    async with listener(handle) as (made, port):
        made.output = OutputBudget(20 << 20, asyncio.get_running_loop().call_soon)
        other = await connect(port, "127.0.0.2")
        deaf = [await connect(port, limit=1) for _ in range(6)]
        for _, writer in deaf:
            writer.transport.pause_reading()
            writer.write(GET.replace(b"/ ", b"/large ", 1))
        await until(lambda: made.slow >= 2)
        assert await answers(*other)
        for _, writer in (*deaf, other):
            writer.close()
        await until(lambda: not made.open)
        assert made.output.noted == 0


async def test_a_call_does_not_begin_before_its_client_has_read_the_answers_before() -> None:
    begun = 0

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal begun
        begun += 1
        return web.Response(body=bytes(16 << 20))

    async with listener(handle) as (made, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.transport.pause_reading()
        writer.write(3 * GET)
        await until(lambda: any(one.kept_bytes for one in made.open))
        for _ in range(100):
            await asyncio.sleep(0)
        assert begun == 1
        writer.transport.resume_reading()
        for _ in range(3):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            await reader.readexactly(16 << 20)
        assert begun == 3
        writer.close()


async def test_who_reads_a_long_answer_slowly_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_SWEEP_S", 3600.0)  # a look at another time would be the last one

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=bytes(16 << 20))

    async with listener(handle) as (made, port):
        reader, writer = await connect(port, limit=1 << 14)
        writer.write(GET)
        await until(lambda: any(one.kept_bytes for one in made.open))
        (connection,) = made.open
        now = connection.last_active
        for _ in range(3):
            made.close_slow(now := now + 0.6 * listening.ANSWER_S)
            unsent = connection.unsent_bytes
            while connection.unsent_bytes >= unsent:
                assert await asyncio.wait_for(reader.read(1 << 14), HANG_S)
            made.close_slow(now := now + 0.6 * listening.ANSWER_S)
            assert not made.slow
        async with asyncio.timeout(HANG_S):
            while not made.slow:  # its system may take a little more of what it does not read
                await asyncio.sleep(0)
                made.close_slow(now := now + 2 * listening.ANSWER_S)
        writer.close()
