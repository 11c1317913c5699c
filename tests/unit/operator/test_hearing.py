"""Which watches were heard of, and that kopf's connection is for reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gantry_operator.account import Account, of_pod
from gantry_operator.hearing import Heard, session
from testkit.simclock import SimClock

PODS, SETS = "/api/v1/pods", "/apis/apps/v1/statefulsets"


def test_the_quietest_watch_counts_and_one_that_never_spoke_is_as_old_as_we_are() -> None:
    clock = SimClock()
    heard = Heard(clock, ["pods", "statefulsets"])
    heard.note(PODS)
    clock.advance(3000)
    heard.note("/api/v1/secrets")
    assert not heard.has_begun and heard.quietest_s == 3
    assert heard.ages_s() == {"pods": 3, "statefulsets": 3}
    heard.note(SETS)
    clock.advance(1000)
    assert heard.has_begun and heard.ages_s() == {"pods": 4, "statefulsets": 1} and heard.quietest_s == 4


def test_a_kind_that_the_server_may_not_know_is_waited_for_by_nobody_and_counts_once_it_spoke() -> None:
    clock = SimClock()
    heard = Heard(clock, ["pods"], 1, ["brokertopics"])
    heard.note("/apis/gantrymq.io/v1alpha1/brokertopics")
    assert not heard.has_begun
    clock.advance(5000)
    heard.note(PODS)
    assert heard.has_begun and heard.quietest_s == 5


def test_each_namespace_has_a_watch_of_its_own() -> None:
    clock = SimClock()
    heard = Heard(clock, ["pods"], 2)
    heard.note("/api/v1/namespaces/one/pods")
    assert not heard.has_begun
    clock.advance(7000)
    heard.note("/api/v1/namespaces/two/pods")
    assert heard.has_begun and heard.quietest_s == 7


def test_more_watches_of_one_kind_do_not_stand_for_those_of_another() -> None:
    clock = SimClock()
    heard = Heard(clock, ["pods", "statefulsets"])
    heard.note("/api/v1/namespaces/one/pods")
    heard.note("/api/v1/namespaces/two/pods")
    clock.advance(7000)
    assert not heard.has_begun and heard.ages_s() == {"pods": 7, "statefulsets": 7}


class Server:
    """Answers a watch with lines, when it is told to; knows the tokens that it was given."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.more = asyncio.Event()

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[Account]:
        app = web.Application()
        app.router.add_route("*", PODS, self._pods)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield Account(f"http://127.0.0.1:{runner.addresses[0][1]}", folder)
        finally:
            await runner.cleanup()

    async def _pods(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers["Authorization"])
        answer = web.StreamResponse()
        await answer.prepare(request)
        await self.more.wait()
        await answer.write(b"{}\n")
        return answer


async def test_every_chunk_of_a_watch_is_news_and_every_request_has_the_token_of_its_time(tmp_path: Path) -> None:
    clock, server = SimClock(), Server()
    heard = Heard(clock, ["pods"])
    async with asyncio.timeout(60), server.running(tmp_path) as account:
        async with session(account, heard) as ours:
            (tmp_path / "token").write_text("first\n")
            async with ours.get(f"{account.server}{PODS}?watch=true") as answer:
                clock.advance(5000)
                assert heard.quietest_s == 5
                server.more.set()
                assert [chunk async for chunk in answer.content.iter_chunked(100)] == [b"{}\n"]
            assert heard.quietest_s == 0
            (tmp_path / "token").write_text("second")
            async with ours.get(f"{account.server}{PODS}"):
                pass
        assert server.tokens == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_what_would_change_something_is_not_sent(tmp_path: Path, method: str) -> None:
    server = Server()
    server.more.set()
    async with asyncio.timeout(60), server.running(tmp_path) as account:
        async with session(account, Heard(SimClock(), ["pods"])) as ours:
            with pytest.raises(aiohttp.ClientError, match="writes nothing"):
                await ours.request(method, f"{account.server}{PODS}")
        assert not server.tokens


def test_an_account_is_found_where_kubernetes_says_it_is(tmp_path: Path) -> None:
    told = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert of_pod(told, tmp_path).server == "https://[fd00::1]:443"
    with pytest.raises(ValueError, match="in a pod"):
        of_pod({})
