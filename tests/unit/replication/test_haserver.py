"""The door itself: what never reaches the member.  What does is in tests/unit/failover/test_asking.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from gantry.errors import ConfigError
from gantry.replication.haapi import BODY_BYTES_MAX, SEAL, Answer
from gantry.replication.haproof import PROOF, Keys, Said
from gantry.replication.haserver import HaServer
from gantry.replication.hastate import MemberState
from gantry.transport.visits import VISITS_MAX
from testkit.patience import HANG_S
from testkit.simclock import SimClock

KEYS = Keys(b"a secret of the whole cluster")


class Nobody:
    """A member whom nothing may reach."""

    def state(self) -> MemberState:
        raise AssertionError("asked for its state")

    def settings(self) -> dict[str, object]:
        raise AssertionError("asked for its configuration")

    def more(self) -> dict[str, object]:
        raise AssertionError("asked for more")

    async def seal(self, epoch: int) -> Answer | None:
        raise AssertionError(f"sealed in {epoch}")


@asynccontextmanager
async def served() -> AsyncIterator[tuple[str, aiohttp.ClientSession, SimClock]]:
    clock = SimClock()
    server = HaServer(Nobody(), KEYS, clock)
    port = await server.start("127.0.0.1", 0)
    async with aiohttp.ClientSession() as session:
        yield f"http://127.0.0.1:{port}", session, clock
    await server.close()


async def test_a_body_that_is_too_long_is_not_read_to_its_end() -> None:
    body = b"x" * (BODY_BYTES_MAX + 1)
    async with served() as (url, session, clock):
        headers = KEYS.ask(Said("POST", SEAL, body), b"n" * 16, clock.now_ms())
        async with session.post(url + SEAL, data=body, headers=headers) as answer:
            assert answer.status == 413


async def test_no_body_is_awaited_of_a_request_without_a_proof() -> None:
    async with served() as (url, _, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"POST /ha/v1/seal HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        assert b" 401 " in await asyncio.wait_for(reader.readline(), HANG_S)
        writer.close()


async def test_requests_whose_body_does_not_come_keep_no_coordinator_out() -> None:
    async with served() as (url, session, clock):
        port = int(url.rpartition(":")[2])
        signed = KEYS.ask(Said("POST", SEAL, b"{}"), b"m" * 16, clock.now_ms())
        head = "".join(f"{name}: {value}\r\n" for name, value in signed.items())
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(VISITS_MAX)]
        for _, writer in held:
            writer.write(f"POST {SEAL} HTTP/1.1\r\nHost: x\r\n{head}Content-Length: 100\r\n\r\n".encode())
        for _ in range(5):
            async with session.post(url + SEAL, data=b"{}") as answer:
                assert answer.status == 401
        for _, writer in held:
            writer.close()


async def test_who_proves_nothing_gets_no_proof_and_no_time() -> None:
    async with served() as (url, session, _), session.post(url + SEAL, data=b"{}") as answer:
        assert answer.status == 401 and PROOF not in answer.headers and "timeMs" not in await answer.json()


async def test_an_answer_comes_however_many_connections_are_silent() -> None:
    async with served() as (url, session, _):
        port = int(url.rpartition(":")[2])
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * VISITS_MAX)]
        for _, writer in silent[VISITS_MAX:]:
            writer.write(b"POST /ha/v1/seal HTTP/1.1\r\n")
        async with session.post(url + SEAL, data=b"{}") as answer:
            assert answer.status == 401 and answer.headers["Connection"] == "close"
        for reader, _ in silent[:VISITS_MAX]:
            assert await reader.read() == b""  # the oldest gave way
        for _, writer in silent:
            writer.close()


async def test_a_wall_clock_that_goes_back_makes_no_old_request_good_again() -> None:
    async with served() as (url, session, clock):
        headers = KEYS.ask(Said("POST", SEAL, b"{}"), b"n" * 16, clock.now_ms())
        clock.advance(60_000)
        clock.jump(-60_000)
        async with session.post(url + SEAL, data=b"{}", headers=headers) as answer:
            assert answer.status == 401 and (await answer.json())["timeMs"] == clock.now_ms() + 60_000


async def test_a_port_that_is_taken_is_named_with_what_to_do() -> None:
    first, second = HaServer(Nobody(), KEYS, SimClock()), HaServer(Nobody(), KEYS, SimClock())
    port = await first.start("127.0.0.1", 0)
    with pytest.raises(ConfigError, match=rf"{port}.*set network.ha_api_port"):
        await second.start("127.0.0.1", port)
    await first.close()
