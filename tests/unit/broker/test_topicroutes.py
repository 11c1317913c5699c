"""Routes for assignments: bounded and shared questions, and no answer instead of a wrong one."""

from __future__ import annotations

import asyncio
import logging

from gantry.broker.complaints import Complaints
from gantry.broker.topicroutes import FRESH_S, QUESTIONS_MAX, STALE_S, TopicRoutes
from gantry.errors import UnreachableError
from gantry.leaves.frames import Command
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.route import QueueData, TopicRoute
from gantry.model.topic import TopicConfig
from gantry.wire import bodies
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply
from testkit.memory_state import MemoryState
from testkit.simclock import SimClock
from testkit.turning import until


class NameServers:
    """Answers with `queues` of the topic at broker `other`; addresses in `away` do not answer."""

    def __init__(self) -> None:
        self.queues = 4
        self.away: set[str] = set()
        self.asked: list[str] = []
        self.open = asyncio.Event()
        self.open.set()

    async def invoke(self, address: str, command: Command, timeout_s: float) -> Command:
        self.asked.append(address)
        await self.open.wait()
        if address in self.away:
            raise UnreachableError(f"{address}: away")
        if not self.queues:
            return reply(command, ResponseCode.TOPIC_NOT_EXIST, "no topic")
        return reply(command, body=bodies.dumps(TopicRoute((QueueData("other", self.queues, 4, 6),)).to_json()))


class Play:
    def __init__(self, *name_servers: str) -> None:
        self.clock = SimClock()
        self.servers = NameServers()
        self.topics = Topics(MemoryState(), self.clock, TopicSettings("b", "c"))
        complaints = Complaints(logging.getLogger("test"), self.clock)
        self.routes = TopicRoutes(self.servers, name_servers, "b", self.topics, self.clock, complaints, within_s=60.0)

    async def count(self, topic: str = "T") -> int | None:
        route = await self.routes.route(topic)
        return None if route is None else len(route.queues_to_read(topic))


async def test_a_route_is_asked_for_again_when_it_is_old() -> None:
    play = Play("ns:1")
    assert await play.count() == 4 and await play.count() == 4
    assert play.servers.asked == ["ns:1"]
    play.servers.queues = 6
    play.clock.advance(int(FRESH_S * 1000))
    assert await play.count() == 6


async def test_a_silent_name_server_is_passed_over_and_the_old_route_is_used_while_all_are_silent() -> None:
    play = Play("ns:1", "ns:2")
    play.servers.away = {"ns:1"}
    assert await play.count() == 4
    play.servers.away = {"ns:1", "ns:2"}
    play.clock.advance(int(STALE_S * 1000) - 1)
    assert await play.count() == 4
    play.clock.advance(1)
    assert await play.count() is None


async def test_a_topic_that_no_name_server_knows_has_no_route_and_is_asked_for_again() -> None:
    play = Play("ns:1")
    play.servers.queues = 0
    assert await play.count() is None
    play.servers.queues = 3
    assert await play.count() == 3


async def test_all_who_want_a_route_share_a_question_and_questions_are_bounded() -> None:
    play = Play("ns:1")
    play.servers.open.clear()
    same = [asyncio.create_task(play.count()) for _ in range(5)]
    others = [asyncio.create_task(play.count(f"T{number}")) for number in range(QUESTIONS_MAX - 1)]
    await until(lambda: len(play.servers.asked) == QUESTIONS_MAX)
    assert await play.count("one more") is None
    play.servers.open.set()
    assert await asyncio.gather(*same) == [4] * 5 and await asyncio.gather(*others) == [4] * (QUESTIONS_MAX - 1)
    assert len(play.servers.asked) == QUESTIONS_MAX


async def test_a_question_that_is_cancelled_does_not_block_the_next_one() -> None:
    play = Play("ns:1")
    play.servers.open.clear()
    first = asyncio.create_task(play.count())
    await until(lambda: bool(play.servers.asked))
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    play.servers.open.set()
    assert await play.count() == 4


async def test_a_broker_without_name_servers_is_the_only_one() -> None:
    play = Play()
    play.topics.put(TopicConfig("T", 5, 5))
    assert await play.count() == 5 and await play.count("none") is None
