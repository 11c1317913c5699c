"""The routes of topics, according to the last answers of the name servers.

A route is refreshed every 30 s, and before its next use after a caller found it wrong (`doubt`).  The old route stays
in use while no name server answers, because brokers continue without name servers.  It also stays when some name
servers do not have the topic and the others do not answer.  Concurrent callers for one route share one request.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

from gantry.client.connections.session import Session
from gantry.client.requests import questions
from gantry.errors import RefusedError, RemoteProtocolError, UnreachableError
from gantry.model.names import TEMPLATE_TOPIC
from gantry.model.route import MessageQueue, TopicRoute
from gantry.transport.client import shared
from gantry.wire.codes import ResponseCode

REFRESH_S = 30.0  # RocketMQ's pollNameServerInterval
_TOPICS_MAX = 2000  # the least recently used topic is removed


@dataclass(slots=True)
class KnownRoute:
    """A route and its queues to write and to read."""

    route: TopicRoute
    to_write: list[MessageQueue]
    to_read: list[MessageQueue]
    masters: dict[str, str]  # address of the master by group
    groups: int  # number of groups that can be written to
    is_doubted: bool = False


class Routes:
    """Routes by topic; `new_topics` lets a producer write to topics that do not exist yet."""

    def __init__(self, session: Session, new_topics: bool = False) -> None:
        self._session = session
        self._new_topics = new_topics
        self._known: OrderedDict[str, KnownRoute] = OrderedDict()
        self._asking: dict[str, asyncio.Task[KnownRoute]] = {}

    def start(self) -> None:
        """Start to refresh all known routes every `REFRESH_S`."""
        self._session.tasks.own(asyncio.create_task(self._refresh(), name="gantry-routes"))

    async def to_write(self, topic: str, within_s: float | None = None) -> list[MessageQueue]:
        """Return the queues to send to, at least one; RefusedError 17 when no broker has the topic.

        UnreachableError when the route was never known and no name server answers, within `within_s` seconds if it is
        given.
        """
        queues = (await self._get(topic, within_s)).to_write
        if not queues:
            raise RefusedError(ResponseCode.NO_PERMISSION, f"topic {topic} has no queue that may be written to now")
        return queues

    def writable(self, topic: str) -> KnownRoute | None:
        """Return the route of a topic with queues to write to; None when `to_write` would ask for it, or raise."""
        known = self._known.get(topic)
        if known is None or known.is_doubted or not known.to_write:
            return None
        self._known.move_to_end(topic)
        return known

    async def to_read(self, topic: str) -> list[MessageQueue]:
        """Return the queues to consume in order; RefusedError 17 when no broker has the topic."""
        return (await self._get(topic)).to_read

    async def route(self, topic: str) -> TopicRoute:
        """Return the whole route; RefusedError 17 when no broker has the topic."""
        return (await self._get(topic)).route

    def master(self, queue: MessageQueue) -> str:
        """Return the address of a queue's master; UnreachableError when its group has none now."""
        known = self._known.get(queue.topic)
        master = None if known is None else known.masters.get(queue.broker_name)
        if master is None:
            self.doubt(queue.topic)
            raise UnreachableError(f"{queue.broker_name}: no master known for topic {queue.topic}")
        return master

    def members(self, queue: MessageQueue) -> dict[int, str]:
        """Return the addresses of a queue's group by id (0 is the master); empty when the group is unknown."""
        known = self._known.get(queue.topic)
        broker = None if known is None else known.route.broker(queue.broker_name)
        if broker is None:
            self.doubt(queue.topic)
            return {}
        return dict(broker.addresses)

    def doubt(self, topic: str) -> None:
        """Ask for the route again before its next use, because it did not work."""
        known = self._known.get(topic)
        if known is not None:
            known.is_doubted = True

    async def _get(self, topic: str, within_s: float | None = None) -> KnownRoute:
        known = self._known.get(topic)
        if known is not None and not known.is_doubted:
            self._known.move_to_end(topic)
            return known
        task = self._asking.get(topic)
        if task is None:
            task = self._session.tasks.own(asyncio.create_task(self._ask(topic)))
            self._asking[topic] = task
            task.add_done_callback(partial(self._asked, topic))
        try:
            # When there is an old route, half of the time is kept for sending by it.
            async with asyncio.timeout(within_s if known is None or within_s is None else within_s / 2):
                return await shared(task)
        except TimeoutError:
            if known is None:
                tried = ", ".join(self._session.nameservers)
                remark = f"topic {topic}: no name server answered within {within_s:g} s, tried {tried}"
                raise UnreachableError(remark) from None
        except UnreachableError:
            if known is None:
                raise
        known.is_doubted = False  # until it fails again, so that not every call waits for silent name servers
        return known

    def _asked(self, topic: str, task: asyncio.Task[KnownRoute]) -> None:
        self._asking.pop(topic, None)
        if not task.cancelled():
            task.exception()  # retrieved here because the caller may have been cancelled

    async def _ask(self, topic: str) -> KnownRoute:
        route, is_certain = await self._session.look_up(questions.route(topic))
        known = self._known.get(topic)
        if route is None and known is not None and not is_certain:
            known.is_doubted = False
            return known
        if route is None and self._new_topics:
            template, _ = await self._session.look_up(questions.route(TEMPLATE_TOPIC))
            route = questions.route_of_new_topic(template)
        if route is None:
            self._known.pop(topic, None)
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"no broker has the topic {topic}")
        to_write = route.queues_to_write(topic)
        masters = {one.broker_name: one.master for one in reversed(route.brokers) if one.master is not None}
        groups = len({queue.broker_name for queue in to_write})
        known = KnownRoute(route, to_write, route.queues_to_read(topic), masters, groups)
        self._known[topic] = known
        self._known.move_to_end(topic)
        while len(self._known) > _TOPICS_MAX:
            self._known.popitem(last=False)
        return known

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            for topic in list(self._known):
                try:
                    await self._ask(topic)
                except (UnreachableError, RefusedError, RemoteProtocolError):
                    continue  # the next caller gets the same error and reports it
