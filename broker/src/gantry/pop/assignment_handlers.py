"""QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401) and GET_ALL_MESSAGE_REQUEST_MODE (402).

A client asks one broker for its queues of a topic on all brokers.  The queues come from the name servers' route, the
members from the heartbeats at this broker, and `assignment` allocates.  When the route or the members cannot be had
the answer has no list: the client keeps what it has, and asks again.  An empty list would take all its queues away.

Source: RocketMQ's `QueryAssignmentProcessor`; facts 9.8 of the protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gantry.metadata.clients import Clients
from gantry.metadata.groups import Groups
from gantry.metadata.longanswers import LongAnswer
from gantry.metadata.topics import Topics
from gantry.model import documents, names
from gantry.model.route import MessageQueue, TopicRoute
from gantry.model.subscription import BROADCASTING
from gantry.pop.assignment import PULL, Mode, share_of
from gantry.pop.modes import Modes, mode_of
from gantry.wire import bodies
from gantry.wire.bodies import MalformedBodyError
from gantry.wire.codes import ResponseCode
from gantry.wire.command import refusal, reply

if TYPE_CHECKING:
    from gantry.leaves.frames import Command
    from gantry.transport.connection import Connection


_INSTEAD = "there are too many modes"


class RouteSource(Protocol):
    """Where the queues of all brokers come from."""

    async def route(self, topic: str) -> TopicRoute | None:
        """Return the route of a topic, within some seconds; None when it cannot be had."""
        ...


class AssignmentRules(NamedTuple):
    """Settings; is_balancing: False gives every member all queues (RocketMQ: serverLoadBalancerEnable)."""

    default: Mode = Mode()
    is_balancing: bool = True


class AssignmentHandlers:
    """Handlers of requests for queues and for the modes of groups."""

    def __init__(
        self,
        modes: Modes,
        routes: RouteSource,
        topics: Topics,
        groups: Groups,
        clients: Clients,
        rules: Callable[[], AssignmentRules],
    ) -> None:
        self._modes = modes
        self._routes = routes
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._rules = rules

    async def query(self, connection: Connection, command: Command) -> Command:
        """QUERY_ASSIGNMENT: the queues of one member; a body without a list when there is no answer."""
        source = _asked(command, "assignment")
        topic, group = documents.text(source, "topic"), documents.text(source, "consumerGroup")
        route = await self._routes.route(topic)
        queues = None if route is None else self._share(source, group, route.queues_to_read(topic))
        if queues is None:
            return reply(command, body=b"{}")
        mode = self.mode(topic, group).mode
        rows = [{"messageQueue": queue.to_json(), "mode": mode} for queue in queues]
        return reply(command, body=bodies.dumps({"messageQueueAssignments": rows}))

    def mode(self, topic: str, group: str) -> Mode:
        """Return how a group reads a topic."""
        mode = self._modes.get(topic, group)
        if mode is None:
            mode = Mode(PULL) if names.is_retry_topic(topic) else self._rules().default
        return mode

    def _share(self, source: documents.Document, group: str, queues: list[MessageQueue]) -> list[MessageQueue] | None:
        is_all = documents.text(source, "messageModel") == BROADCASTING or not self._rules().is_balancing
        if is_all or not queues:
            return queues or None
        member, strategy = documents.text(source, "clientId"), documents.text(source, "strategyName")
        return share_of(member, self._clients.consumers(group), queues, strategy, self.mode(queues[0].topic, group))

    async def set_mode(self, connection: Connection, command: Command) -> Command:
        """SET_MESSAGE_REQUEST_MODE: whether a group pulls or pops a topic.  The reply waits until it is saved.

        A group that does not exist is made, like by its first heartbeat; SUBSCRIPTION_GROUP_NOT_EXIST where none is.
        """
        source = _asked(command, "mode")
        topic, group = documents.text(source, "topic"), documents.text(source, "consumerGroup")
        try:
            mode = mode_of(source)
        except ValueError as error:
            return reply(command, ResponseCode.INVALID_PARAMETER, str(error))
        if names.is_retry_topic(topic):
            return reply(command, ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.get(topic) is None:
            return reply(command, ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic[:127]}] not exist")
        if (fault := names.group_fault(group)) is not None:
            return reply(command, ResponseCode.INVALID_PARAMETER, fault)
        # RocketMQ: `mqadmin setConsumeMode` may come before the first heartbeat, which would make the group.
        if self._groups.ensure(group) is None:
            remark = f"subscription group not exist, {group[:120]}; create the group first"
            return reply(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        self._groups.file.save_if_changed()
        refused = self._modes.put(topic, group, mode)
        for _ in self._modes.saving(always=True):
            await asyncio.sleep(0)
        return reply(command) if refused is None else refusal(command, refused)

    async def all_modes(self, connection: Connection, command: Command) -> Command:
        """GET_ALL_MESSAGE_REQUEST_MODE: the whole table."""
        modes, answer = self._modes, LongAnswer(_INSTEAD)
        for topic in modes.topics():
            groups = LongAnswer(_INSTEAD)
            for group in modes.groups_of(topic):
                if (value := modes.value(f"{topic}@{group}")) is not None:
                    await groups.add(bodies.member(group, value))
            await answer.add(groups.joined(bodies.dumps(topic) + b":{", b"}"))
        return reply(command, body=answer.joined(b'{"messageRequestModeMap":{', b"}}"))


def _asked(command: Command, what: str) -> documents.Document:
    try:
        source = bodies.asked(command.body)
        for name in ("topic", "consumerGroup", "clientId", "strategyName", "messageModel", "mode"):
            documents.text(source, name)
    except MalformedBodyError:
        raise
    except ValueError as error:
        raise MalformedBodyError(f"{what}: {error}") from error
    return source
