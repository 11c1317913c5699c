"""The routes of topics as the name servers know them, for answers about the queues of all brokers.

A route is used for 30 s and then asked for again before its next use.  All who want the same route at the same time
share one question, and all name servers together get some seconds for it.  When none of them answers, the old route
stays in use for a while, because brokers continue without name servers; after that nothing is returned.  A broker
without name servers is the only one, and its own table is the route.

A topic that no name server knows is asked for each time, because it may be new.  Routes and questions are bounded: the
least recently used route is dropped, and with too many questions under way there is no answer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import NamedTuple, Protocol

from gantry.broker.complaints import Complaints
from gantry.broker.registration_worker import Invoker
from gantry.clock import Clock
from gantry.errors import GantryError, RefusedError, UnreachableError
from gantry.model.route import QueueData, TopicRoute
from gantry.model.topic import TopicConfig
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import request
from gantry.wire.headers import to_ext

FRESH_S = 30.0  # RocketMQ's pollNameServerInterval
STALE_S = 300.0  # a route without any answer of a name server since then is not used any more
WITHIN_S = 3.0
ROUTES_MAX = 2_000
QUESTIONS_MAX = 64


class OwnTopics(Protocol):
    """The used part of `metadata.topics.Topics`."""

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic of this broker; None when it does not exist."""
        ...


class _Known(NamedTuple):
    route: TopicRoute
    asked_s: float


class TopicRoutes:
    """Routes by topic.  Loop thread only."""

    def __init__(
        self,
        client: Invoker,
        name_servers: tuple[str, ...],
        broker_name: str,
        topics: OwnTopics,
        clock: Clock,
        complaints: Complaints,
        within_s: float = WITHIN_S,
    ) -> None:
        self._client = client
        self._name_servers = name_servers
        self._broker_name = broker_name
        self._topics = topics
        self._clock = clock
        self._complaints = complaints
        self._within_s = within_s
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._asking: dict[str, asyncio.Future[TopicRoute | None]] = {}

    async def route(self, topic: str) -> TopicRoute | None:
        """Return the route of a topic, within `within_s` seconds; None when it cannot be had."""
        if not self._name_servers:
            return self._own(topic)
        now_s, known = self._clock.monotonic(), self._known.get(topic)
        if known is not None and now_s - known.asked_s < FRESH_S:
            self._known.move_to_end(topic)
            return known.route
        try:
            return await self._shared(topic)
        except (GantryError, ValueError) as error:
            if known is not None and now_s - known.asked_s < STALE_S:
                return known.route
            remark = f"the route of topic {topic[:127]} cannot be had, so its consumers keep the queues that they have"
            self._complaints.say("route", f"{remark}: {error}")
            return None

    async def _shared(self, topic: str) -> TopicRoute | None:
        """Return the route according to the name servers, None when they do not know the topic; one question at a time
        for each topic.  GantryError or ValueError when no name server answers.
        """
        asking = self._asking.get(topic)
        if asking is not None:
            return await asyncio.shield(asking)
        if len(self._asking) >= QUESTIONS_MAX:
            raise UnreachableError(f"{QUESTIONS_MAX} routes are being asked for")
        asking = self._asking[topic] = asyncio.get_running_loop().create_future()
        try:
            route = await self._ask(topic)
            asking.set_result(route)
        except (GantryError, ValueError) as error:
            asking.set_exception(error)
            asking.exception()  # retrieved, because nobody else may be waiting
            raise
        finally:
            if not asking.done():  # the one who asks is cancelled: the others must not be cancelled with it
                asking.set_exception(UnreachableError(f"the question for topic {topic[:127]} was given up"))
                asking.exception()
            del self._asking[topic]
        return route

    async def _ask(self, topic: str) -> TopicRoute | None:
        asked_s = self._clock.monotonic()
        failed: GantryError | ValueError = UnreachableError(f"no name server answered within {self._within_s:g} s")
        try:
            async with asyncio.timeout(self._within_s):
                for address in self._name_servers:
                    try:
                        route = await self._ask_one(address, topic)
                    except (GantryError, ValueError) as error:
                        failed = error
                        continue
                    self._note(topic, route, asked_s)
                    return route
        except TimeoutError:
            pass
        raise failed

    def _note(self, topic: str, route: TopicRoute | None, asked_s: float) -> None:
        self._known.pop(topic, None)
        if route is not None:
            self._known[topic] = _Known(route, asked_s)
            while len(self._known) > ROUTES_MAX:
                self._known.popitem(last=False)

    async def _ask_one(self, address: str, topic: str) -> TopicRoute | None:
        """Return the route according to one name server; None when it does not know the topic."""
        question = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, to_ext(topic=topic))
        answer = await self._client.invoke(address, question, self._within_s / 2)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code:
            raise RefusedError(answer.code, answer.remark or "no remark")
        return TopicRoute.from_json(bodies.loads_object(answer.body))

    def _own(self, topic: str) -> TopicRoute | None:
        config = self._topics.get(topic)
        if config is None:
            return None
        return TopicRoute((QueueData(self._broker_name, config.read_queues, config.write_queues, config.perm),))
