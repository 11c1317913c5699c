"""Connections made on demand, shared, given up and found again."""

from __future__ import annotations

import asyncio

import pytest

from gantry.errors import OutcomeUnknownError, UnreachableError
from gantry.leaves import frames
from gantry.transport.client import RemotingClient
from gantry.transport.connection import Connection
from gantry.transport.server import RemotingServer
from gantry.wire.command import Request
from testkit.patience import HANG_S


def echo(connection: Connection, requests: list[Request]) -> None:
    for request in requests:
        if not request.is_oneway:
            connection.write(frames.encode(frames.Command(0, opaque=request.opaque, flag=1, body=request.body)))


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_callers_of_one_address_share_one_connection() -> None:
    server = RemotingServer(echo)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    client = RemotingClient()
    asked = [client.invoke(address, frames.Command(28, body=bytes([n])), HANG_S) for n in range(50)]
    replies = await asyncio.gather(*asked)
    assert [reply.body for reply in replies] == [bytes([n]) for n in range(50)]
    assert len(server.connections) == 1
    await client.close()
    await server.close()


async def test_an_address_that_does_not_answer_is_unreachable_and_rests_for_a_moment() -> None:
    client = RemotingClient()
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(UnreachableError, match=address):
        await client.invoke(address, frames.Command(28), HANG_S)
    with pytest.raises(UnreachableError, match="a moment ago"):
        await client.invoke(address, frames.Command(28), HANG_S)
    await client.close()


async def test_a_server_that_comes_back_is_found_again() -> None:
    port = free_port()
    client = RemotingClient()
    with pytest.raises(UnreachableError):
        await client.invoke(f"127.0.0.1:{port}", frames.Command(28), HANG_S)
    server = RemotingServer(echo)
    await server.start("127.0.0.1", port)

    async def until_answered() -> None:
        while True:
            try:
                await client.invoke(f"127.0.0.1:{port}", frames.Command(28), HANG_S)
                return
            except UnreachableError:
                await asyncio.sleep(0.01)

    await asyncio.wait_for(until_answered(), HANG_S)
    await client.close()
    await server.close()


async def test_a_lost_connection_leaves_the_outcome_unknown_and_the_next_call_connects_again() -> None:
    silent = True

    def answer(connection: Connection, requests: list[Request]) -> None:
        if silent:
            connection.close("no")
        else:
            echo(connection, requests)

    server = RemotingServer(answer)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    client = RemotingClient()
    with pytest.raises(OutcomeUnknownError):
        await client.invoke(address, frames.Command(28), HANG_S)
    assert client.connections() == {}
    silent = False
    assert (await client.invoke(address, frames.Command(28), HANG_S)).code == 0
    await client.close()
    await server.close()


async def test_one_caller_who_gives_up_does_not_end_the_attempt_of_others() -> None:
    server = RemotingServer(echo)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    client = RemotingClient()
    impatient = asyncio.ensure_future(client.invoke(address, frames.Command(28), HANG_S))
    patient = asyncio.ensure_future(client.invoke(address, frames.Command(28), HANG_S))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient).code == 0
    await client.close()
    await server.close()


async def test_large_requests_with_large_answers_do_not_make_both_ends_wait_for_each_other() -> None:
    server = RemotingServer(echo)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    client = RemotingClient()
    asked = [client.invoke(address, frames.Command(28, body=bytes([n]) * (3 << 20)), HANG_S) for n in range(24)]
    assert [reply.body[:1] for reply in await asyncio.gather(*asked)] == [bytes([n]) for n in range(24)]
    await client.close()
    await server.close()


async def test_requests_of_the_other_side_are_handed_over() -> None:
    connected: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
    server = RemotingServer(echo, connected.set_result)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    got: asyncio.Future[list[frames.Command]] = asyncio.get_running_loop().create_future()
    client = RemotingClient(lambda _, commands: got.set_result(commands))
    await client.send_oneway(address, frames.Command(35))
    (await connected).send_oneway(frames.Command(40, ext={"consumerGroup": "g"}))
    (notice,) = await asyncio.wait_for(got, HANG_S)
    assert (notice.code, notice.ext, notice.is_oneway) == (40, {"consumerGroup": "g"}, True)
    await client.close()
    await server.close()


async def test_the_news_of_a_connection_comes_before_anything_else_is_sent_on_it() -> None:
    codes: list[int] = []

    def note(connection: Connection, requests: list[Request]) -> None:
        codes.extend(request.code for request in requests)
        echo(connection, requests)

    server = RemotingServer(note)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    client = RemotingClient(on_connect=lambda _, connection: connection.send_oneway(frames.Command(34)))
    await asyncio.gather(*(client.invoke(address, frames.Command(28), HANG_S) for _ in range(3)))
    assert codes == [34, 28, 28, 28]
    assert list(client.connections()) == [address]
    await client.close()
    await server.close()


async def test_a_connection_on_which_nothing_comes_any_more_is_given_up_with_the_request_that_showed_it() -> None:
    server = RemotingServer(lambda connection, requests: None)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    patient, impatient = RemotingClient(), RemotingClient(deaf_s=0.0)
    for client in (patient, impatient):
        with pytest.raises(OutcomeUnknownError):
            await client.invoke(address, frames.Command(28), 0.5)
    assert patient.connections()
    assert not impatient.connections()
    await patient.close()
    await impatient.close()
    await server.close()


async def test_a_closed_client_reaches_nobody() -> None:
    client = RemotingClient()
    await client.close()
    with pytest.raises(UnreachableError, match="closed"):
        await client.invoke("127.0.0.1:1", frames.Command(28), HANG_S)
