"""A name that nobody answers for delays no other name, and costs one thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gantry.errors import OutcomeUnknownError, UnreachableError
from gantry.transport import lookups
from gantry.transport.client import RemotingClient
from gantry.wire.command import request
from testkit.patience import HANG_S
from testkit.turning import until


class Resolver:
    """The system's: it knows `near`, and says nothing about names that begin with `hangs` until it is opened."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.open = threading.Event()

    def getaddrinfo(self, name: str, *_: Any, **__: Any) -> list[Any]:
        self.asked.append(name)
        if name.startswith("hangs"):
            self.open.wait(60)
        if name != "near":
            raise socket.gaierror(f"{name} is not known")
        family, kind = socket.AF_INET, socket.SOCK_STREAM
        return [(family, kind, 6, "", ("127.0.0.99", 0)), (family, kind, 6, "", ("127.0.0.1", 0))]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    found = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", found.getaddrinfo)
    yield found
    found.open.set()
    for thread in threading.enumerate():
        if thread.name.startswith("lookup of "):
            thread.join(HANG_S)  # it counts until it ends, also for the next test


class Taker(asyncio.Protocol):
    """Hangs up when it has read something, or its other side has hung up."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.close()


@asynccontextmanager
async def listening() -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(Taker, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
    await asyncio.sleep(0)  # its connections end


async def test_names_that_hang_delay_no_other_name_and_are_looked_up_once(resolver: Resolver) -> None:
    async with listening() as port:
        waiting = [asyncio.ensure_future(lookups.connect(Taker, f"hangs{n % 20}", port)) for n in range(60)]
        await asyncio.sleep(0)
        for given_up in waiting[20:]:
            given_up.cancel()
        taker = await lookups.connect(Taker, "near", port)  # the first of its addresses refuses
        await until(lambda: len(resolver.asked) == 21)
        assert sorted(resolver.asked) == sorted(["near", *(f"hangs{n}" for n in range(20))])
        resolver.open.set()
        for outcome in await asyncio.gather(*waiting[:20], return_exceptions=True):
            assert isinstance(outcome, OSError) and "not known" in str(outcome)
        taker.transport.write(b"bye")
        await until(taker.transport.is_closing)


async def test_a_client_that_gives_up_names_reaches_the_others(resolver: Resolver) -> None:
    client = RemotingClient(connect_s=0.01)
    for number in range(10):
        with pytest.raises(UnreachableError):
            await client.invoke(f"hangs{number}:1", request(105, {}), 0.01)
    await client.close()
    client = RemotingClient()
    async with listening() as port:
        with pytest.raises(OutcomeUnknownError):
            await client.invoke(f"near:{port}", request(105, {}), HANG_S)
    await client.close()


async def test_so_many_names_at_once_and_no_more(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "_NAMES_AT_ONCE", 2)
    waiting = [asyncio.ensure_future(lookups.addresses(name)) for name in ("hangs-a", "hangs-b")]
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="look at the resolver"):
        await lookups.addresses("near")
    resolver.open.set()
    await asyncio.wait(waiting)
    assert await lookups.addresses("near") == ["127.0.0.99", "127.0.0.1"]


async def test_without_a_thread_a_lookup_fails_and_the_next_one_does_not(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="allow this process more"):
            await lookups.addresses("near")
    assert await lookups.addresses("near") == ["127.0.0.99", "127.0.0.1"]


@pytest.mark.parametrize("closed_first", [True, False])
def test_a_loop_that_ends_before_its_names_are_found_keeps_no_place(resolver: Resolver, closed_first: bool) -> None:
    """It is closed before the resolver answers, or when it has answered and nothing has run on the loop since."""
    loop = asyncio.new_event_loop()
    asking = loop.create_task(lookups.addresses("hangs"))
    loop.run_until_complete(asyncio.sleep(0))
    asking.cancel()
    loop.run_until_complete(asyncio.wait([asking]))
    assert list(lookups._under_way) == [(loop, "hangs")]
    if closed_first:
        loop.close()
    resolver.open.set()
    for thread in threading.enumerate():
        if thread.name == "lookup of hangs":
            thread.join(HANG_S)
    loop.close()
    assert not lookups._under_way
