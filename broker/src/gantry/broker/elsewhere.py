"""Since when a group reads a topic on the other brokers of the topic.

A group that has no progress here may be new, or it reads the topic on another broker already, and this broker got the
topic later.  Only the others know.  They are asked by QUERY_CONSUMER_OFFSET (14), and a broker of this version tells in
`gantryBegan` since when.  One that does not answer in time, or is older, or RocketMQ's, tells nothing: then the group
counts as new here (docs/divergence.md).

An answer is used for some seconds: a client asks for queue after queue.  All who want the same answer share one
question.  Questions under way are bounded, and others wait for their turn: a hundred groups may start together.  After
some seconds a group gets no answer, because its client waits only five.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from gantry.broker.registration_worker import Invoker
from gantry.clock import Clock
from gantry.errors import GantryError
from gantry.leaves import fields
from gantry.model.route import TopicRoute
from gantry.pop.assignment_handlers import RouteSource
from gantry.wire.codes import RequestCode
from gantry.wire.command import request
from gantry.wire.headers import to_ext

_FRESH_S = 10.0
_WITHIN_S = 2.0
_ANSWERS_MAX = 10_000
_QUESTIONS_MAX = 32  # the routes that they need are bounded too
_TURN_S = 2.0


class ProgressElsewhere:
    """Asks other brokers.  Loop thread only."""

    def __init__(self, client: Invoker, routes: RouteSource, broker_name: str, clock: Clock) -> None:
        self._client = client
        self._routes = routes
        self._broker_name = broker_name
        self._clock = clock
        self._known: OrderedDict[tuple[str, str], tuple[int | None, float]] = OrderedDict()
        self._asking: dict[tuple[str, str], asyncio.Future[int | None]] = {}  # bounded like requests under way
        self._places = asyncio.Semaphore(_QUESTIONS_MAX)

    async def began_ms(self, group: str, topic: str) -> int | None:
        """Return since when (wall clock of another broker, ms) the group reads the topic elsewhere; None: unknown."""
        key, now_s = (group, topic), self._clock.monotonic()
        known = self._known.get(key)
        if known is not None and now_s - known[1] < _FRESH_S:
            return known[0]
        asking = self._asking.get(key)
        if asking is not None:
            return await asyncio.shield(asking)
        asking = self._asking[key] = asyncio.get_running_loop().create_future()
        found: int | None = None
        try:
            async with asyncio.timeout(_TURN_S):
                await self._places.acquire()
            try:
                found = await self._ask(group, topic)
            finally:
                self._places.release()
            self._known.pop(key, None)
            self._known[key] = found, now_s
            if len(self._known) > _ANSWERS_MAX:
                self._known.popitem(last=False)
        except TimeoutError:
            pass
        finally:
            asking.set_result(found)
            del self._asking[key]
        return found

    async def _ask(self, group: str, topic: str) -> int | None:
        route = await self._routes.route(topic)
        addresses = [] if route is None else self._others(route)
        found = await asyncio.gather(*(self._ask_one(address, group, topic) for address in addresses))
        return min((began for began in found if began is not None), default=None)

    def _others(self, route: TopicRoute) -> list[str]:
        """Return an address of every other broker that has queues of the topic: its master's, else a slave's."""
        names = {queue.broker_name for queue in route.queues} - {self._broker_name}
        others = [broker for broker in route.brokers if broker.broker_name in names and broker.addresses]
        return [broker.addresses[min(broker.addresses)] for broker in others]

    async def _ask_one(self, address: str, group: str, topic: str) -> int | None:
        ext = to_ext(consumerGroup=group, topic=topic, queueId=0, setZeroIfNotFound=False)
        try:
            answer = await self._client.invoke(address, request(RequestCode.QUERY_CONSUMER_OFFSET, ext), _WITHIN_S)
        except GantryError:
            return None
        return fields.integer((answer.ext or {}).get("gantryBegan", ""))
