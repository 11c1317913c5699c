"""What clients may do to the listener: those that do not read, and bodies that are too much together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from gantry.queues import listening
from gantry.queues.listening import BodiesFullError, BodyRoom, BodyShare, HttpListener, QueueConnection, body_of
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
    room, release = BodyRoom(100_000), asyncio.Event()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        share = BodyShare(room)
        try:
            body = await body_of(request, False, share)
            await release.wait()
            return web.Response(body=body)
        except BodiesFullError:
            return web.Response(status=503)
        finally:
            share.end()

    async with listener(handle) as (_, port):
        ends = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for number, (_, writer) in enumerate(ends):
            writer.write(b"PUT / HTTP/1.1\r\nHost: here\r\nContent-Length: 60000\r\n\r\n" + bytes(60_000))
            if number == 0:
                await until(lambda: room.taken == 60_000)
        for reader, _ in ends[1:]:
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 503 ")
        await until(lambda: room.taken == 60_000)
        release.set()
        assert (await ends[0][0].readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
        await until(lambda: room.taken == 0)
        for _, writer in ends:
            writer.close()
