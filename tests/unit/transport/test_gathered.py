"""Sockets that are read and written together: what a turn does, and what one connection may not do to others."""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gantry.errors import ConfigError
from gantry.leaves import frames
from gantry.transport import gathered
from gantry.transport import server as serving
from gantry.transport.connection import Connection
from gantry.transport.limits import ConnectionLimits
from gantry.transport.listening import open_sockets
from gantry.transport.readbuffer import ReadBuffer
from gantry.transport.server import RemotingServer, Together
from gantry.wire.command import Request
from testkit.compiled import fast
from testkit.patience import HANG_S

fast("sockets")
if not gathered.COMPILED:
    pytest.skip("the pure leaves were asked for", allow_module_level=True)

Runs = list[tuple[Connection, list[frames.Send]]]


def question(opaque: int, body: bytes = b"") -> bytes:
    return frames.encode(frames.Command(28, opaque=opaque, body=body))


def a_send(opaque: int) -> bytes:
    ext = dict(zip("abcdefghijkm", ("g", "T", "T", "4", "0", "0", "0", "0", "", "0", "false", "false"), strict=True))
    return frames.encode(frames.Command(310, opaque=opaque, ext=ext, body=b"x"))


def echo(connection: Connection, requests: list[Request]) -> None:
    for request in requests:
        connection.write(frames.encode(frames.Command(0, opaque=request.opaque, flag=1)))


class Play:
    """A server whose sockets are gathered, and its plain clients."""

    def __init__(self, server: RemotingServer, port: int) -> None:
        self.server, self.port = server, port
        self.clients: list[socket.socket] = []

    async def connect_only(self) -> socket.socket:
        client = socket.socket()
        client.setblocking(False)
        self.clients.append(client)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", self.port))
        return client

    async def connect(self) -> socket.socket:
        client = await self.connect_only()
        await until(lambda: any(one.peer.endswith(f":{client.getsockname()[1]}") for one in self.server.connections))
        return client

    @property
    def connections(self) -> list[Connection]:
        return list(self.server.connections)

    @property
    def poll(self) -> int:
        assert self.server._gathered is not None
        return self.server._gathered._poll.fileno()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_S):
        for _ in iter(holds, True):
            await asyncio.sleep(0)


async def answers(client: socket.socket, count: int) -> list[int]:
    """The numbers of the next `count` answers."""
    data, found = bytearray(), list[int]()
    async with asyncio.timeout(HANG_S):
        while len(found) < count:
            piece = await asyncio.get_running_loop().sock_recv(client, 1 << 16)
            assert piece, f"closed after {len(found)} of {count} answers"
            data += piece
            used, commands = frames.decode(data, 0, len(data))
            del data[:used]
            found += [command.opaque for command in commands]
    return found


async def is_closed(client: socket.socket) -> bool:
    try:
        while await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1 << 16), HANG_S):
            pass
    except ConnectionResetError:
        pass
    return True


@asynccontextmanager
async def play(
    on_requests: Callable[[Connection, list[Request]], None] = echo,
    limits: ConnectionLimits | None = None,
    buffer: ReadBuffer | None = None,
    together: Together | None = None,
) -> AsyncIterator[Play]:
    server = RemotingServer(on_requests, limits=limits, buffer=buffer, together=together)
    playing = Play(server, await server.start("127.0.0.1", 0))
    try:
        yield playing
    finally:
        for client in playing.clients:
            client.close()
        await server.close()


async def test_sends_of_several_connections_come_together_and_the_turn_ends_before_their_replies_leave() -> None:
    seen: list[list[int]] = []
    together = Together()

    def on_sends(runs: Runs) -> bool:
        seen.append(sorted(send.opaque for _, sends in runs for send in sends))
        together.turns.soon(lambda: [echo(connection, list[Request](sends)) for connection, sends in runs] and None)
        return True

    together = Together(on_sends=on_sends)
    async with play(together=together) as on:
        clients = [await on.connect() for _ in range(5)]
        for number, client in enumerate(clients):
            client.send(a_send(number))
        assert [await answers(client, 1) for client in clients] == [[number] for number in range(5)]
    assert seen == [list(range(5))]


async def test_sends_that_are_not_taken_together_come_by_connection_and_so_does_everything_else() -> None:
    batches: list[list[int]] = []

    def note(connection: Connection, requests: list[Request]) -> None:
        batches.append([request.opaque for request in requests])
        echo(connection, requests)

    async with play(note, together=Together(on_sends=lambda runs: False)) as on:
        one, other = await on.connect(), await on.connect()
        one.send(a_send(1) + a_send(2))
        other.send(a_send(3) + question(4))
        assert await answers(one, 2) == [1, 2] and await answers(other, 2) == [3, 4]
    assert sorted(batches) == [[1, 2], [3, 4]]


async def test_a_peer_that_closes_one_direction_gets_its_answers_first() -> None:
    async with play() as on:
        client = await on.connect()
        client.send(question(1) + question(2))
        client.shutdown(socket.SHUT_WR)
        assert await answers(client, 2) == [1, 2]
        assert await is_closed(client)
        await until(lambda: not on.connections)


async def test_a_peer_that_is_gone_while_nothing_is_read_from_it_does_not_wake_the_loop() -> None:
    async with play() as on:
        client = await on.connect()
        (connection,) = on.connections
        connection.pause_reading("test")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()  # a reset
        assert not select.select([on.poll], [], [], 0.2)[0]
        connection.resume_reading("test")
        await until(lambda: not on.connections)


async def test_those_that_always_have_more_to_read_keep_nobody_out() -> None:
    async with play(buffer=ReadBuffer(32 << 10)) as on:
        flood = question(1, bytes(20 << 10))
        busy = [await on.connect() for _ in range(3)]
        quiet = await on.connect()
        for client in busy:
            while True:
                try:
                    client.send(flood * 100)
                except BlockingIOError:
                    break
        quiet.send(question(7))
        assert await answers(quiet, 1) == [7]
        assert len(on.connections) == 4


async def test_an_exception_of_one_handler_ends_its_connection_only() -> None:
    told: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))

    def on_requests(connection: Connection, requests: list[Request]) -> None:
        if requests[0].opaque == 13:
            raise ValueError("a bug")
        echo(connection, requests)

    async with play(on_requests) as on:
        clients = [await on.connect() for _ in range(3)]
        for client, opaque in zip(clients, (1, 13, 3), strict=True):
            client.send(question(opaque))
        assert await answers(clients[0], 1) == [1] and await answers(clients[2], 1) == [3]
        assert await is_closed(clients[1])
        assert len(on.connections) == 2
    assert [str(error) for error in told] == ["a bug"]


async def test_bad_bytes_between_good_ones_of_the_same_turn_end_their_connection_only() -> None:
    async with play() as on:
        clients = [await on.connect() for _ in range(3)]
        for client, data in zip(clients, (question(1), b"GET / HTTP/1.1\r\n\r\n", question(3)), strict=True):
            client.send(data)
        assert await answers(clients[0], 1) == [1] and await answers(clients[2], 1) == [3]
        assert await is_closed(clients[1])


@pytest.mark.parametrize("size", [1, 700, 90_000])
async def test_many_pieces_leave_in_order_to_a_peer_that_reads_slowly(size: int) -> None:
    pieces = [struct.pack(">I", number) + bytes(size) for number in range(400)]

    def on_requests(connection: Connection, requests: list[Request]) -> None:
        for piece in pieces:
            connection._transport.write(memoryview(piece))  # type: ignore[union-attr]

    async with play(on_requests, ConnectionLimits(output_bytes_high=1 << 16, output_bytes_max=1 << 30)) as on:
        client = await on.connect()
        client.send(question(1))
        whole, found = b"".join(pieces), bytearray()
        async with asyncio.timeout(HANG_S):
            while len(found) < len(whole):
                found += await asyncio.get_running_loop().sock_recv(client, 50_000)
        assert found == whole


@pytest.mark.parametrize("pieces", [0, 40])
async def test_output_that_was_resized_while_it_waited_ends_its_connection_only(pieces: int) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    def on_requests(connection: Connection, requests: list[Request]) -> None:
        if requests[0].opaque == 13:
            reply = bytearray(question(13))
            connection._transport.writelines([reply, *[b"."] * pieces])  # type: ignore[union-attr]
            del reply[10:]
        else:
            echo(connection, requests)

    async with play(on_requests) as on:
        good, bad = await on.connect(), await on.connect()
        bad.send(question(13))
        good.send(question(1))
        assert await answers(good, 1) == [1]
        assert await asyncio.get_running_loop().sock_recv(bad, 1 << 16) == b""


async def test_what_is_written_outside_of_a_turn_leaves_too() -> None:
    async with play() as on:
        clients = [await on.connect() for _ in range(70)]
        for begin in (0, 100):
            for number, connection in enumerate(on.connections):
                connection.write(question(begin + number))
            assert [await answers(client, 1) for client in clients] == [[begin + number] for number in range(70)]


async def test_connections_that_come_and_go_take_the_places_of_others() -> None:
    async with play() as on:
        for round_ in range(5):
            clients = [await on.connect() for _ in range(20)]
            for number, client in enumerate(clients):
                client.send(question(100 * round_ + number))
            assert [(await answers(client, 1))[0] % 100 for client in clients] == list(range(20))
            for client in clients:
                client.close()
            await until(lambda: not on.connections)


async def test_a_connection_whose_beginning_fails_leaves_nothing_behind_that_a_later_one_could_meet() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    met: list[Connection] = []

    def on_connect(connection: Connection) -> None:
        met.append(connection)
        if len(met) == 1:
            raise OSError(105, "no buffer space")

    server = RemotingServer(echo, on_connect=on_connect)
    on = Play(server, await server.start("127.0.0.1", 0))
    try:
        failed = await on.connect_only()
        assert await is_closed(failed)
        await until(lambda: not on.connections)
        client = await on.connect()
        met[0].write(question(13))  # its descriptor has the same number as that of the second one
        met[0].abort("test")
        client.send(question(1))
        assert await answers(client, 1) == [1]
    finally:
        for client in on.clients:
            client.close()
        await server.close()


@pytest.mark.parametrize("taken", ["one by one", "together"])
async def test_an_exception_while_sends_of_a_turn_are_handed_over_leaves_no_other_without_an_answer(taken: str) -> None:
    told: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))

    def on_requests(connection: Connection, requests: list[Request]) -> None:
        if requests[0].opaque == 0:
            raise ValueError("a bug")
        echo(connection, requests)

    def on_sends(runs: Runs) -> bool:
        if taken == "together":
            raise ValueError("a bug")
        return False

    async with play(on_requests, together=Together(on_sends=on_sends)) as on:
        clients = [await on.connect() for _ in range(4)]
        for number, client in enumerate(clients):
            client.send(a_send(number))
        assert await is_closed(clients[0])
        for number, client in enumerate(clients[1:], 1):
            assert await (is_closed(client) if taken == "together" else answers(client, 1)) in (True, [number])
    assert [str(error) for error in told] == ["a bug"]


async def test_a_server_for_whose_poll_no_descriptor_is_left_keeps_no_listening_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_descriptor(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    opened: list[socket.socket] = []

    async def noted(*arguments: Any) -> list[socket.socket]:
        opened.extend(await open_sockets(*arguments))
        return opened

    monkeypatch.setattr(serving, "GatheredSockets", no_descriptor)
    monkeypatch.setattr(serving, "open_sockets", noted)
    with pytest.raises(ConfigError, match="Too many open files"):
        await RemotingServer(echo).start("127.0.0.1", 0)
    assert [one for one in opened if one.fileno() >= 0] == []


async def test_accepting_pauses_after_an_error_that_would_come_again() -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    deaf, peer = socket.socketpair()  # accept fails with EINVAL
    deaf.setblocking(False)
    listener = gathered.Listener([deaf], 8, lambda *_: None)
    peer.send(b"x")
    await until(lambda: bool(told))
    for _ in range(5):
        await asyncio.sleep(0)
    assert told == ["no connection can be accepted: Invalid argument; again in 1 s"]
    listener.close()
    peer.close()
