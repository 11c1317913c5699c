"""Requests about connected clients: GET_CONSUMER_CONNECTION_LIST (203), GET_PRODUCER_CONNECTION_LIST (204),
GET_ALL_PRODUCER_INFO (328), QUERY_SUBSCRIPTION_BY_CONSUMER (345).  RocketMQ: `AdminBrokerProcessor`.

A group is listed as its members' last heartbeats describe it.  A group without members is not online, even if it has
offsets and a configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gantry.clock import Clock
from gantry.leaves.frames import Command
from gantry.metadata import longanswers
from gantry.metadata.clients import Clients, GroupClient
from gantry.metadata.longanswers import LongAnswer
from gantry.wire import bodies, headers
from gantry.wire.codes import Language, ResponseCode
from gantry.wire.command import reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

_LANGUAGES = frozenset(Language)
_INSTEAD = "look at /metrics, which counts them"


class ConnectionHandlers:
    """Handlers of administrators' requests about clients."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock

    async def consumers(self, connection: Connection, command: Command) -> Command:
        """GET_CONSUMER_CONNECTION_LIST: the members of a consumer group, how they consume and what."""
        name = headers.parse(command.code, command.ext).text("consumerGroup")
        group = self._clients.consumer_group(name)
        if group is None:
            return reply(command, ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        head = {
            "consumeFromWhere": group.consumption.consume_from_where,
            "consumeType": group.consumption.consume_type,
            "messageModel": group.consumption.message_model,
        }
        members = await _connections(group.members)
        subscriptions = ((one.topic, one.to_json()) for one in list(group.subscriptions.values()))
        body = await longanswers.table(head, "subscriptionTable", subscriptions, _INSTEAD)
        return reply(command, body=body[:-1] + b',"connectionSet":' + members + b"}")

    async def producers(self, connection: Connection, command: Command) -> Command:
        """GET_PRODUCER_CONNECTION_LIST: the members of a producer group."""
        name = headers.parse(command.code, command.ext).text("producerGroup")
        members = self._clients.producers(name)
        if not members:
            return reply(command, ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return reply(command, body=b'{"connectionSet":' + await _connections(members) + b"}")

    async def all_producers(self, connection: Connection, command: Command) -> Command:
        """GET_ALL_PRODUCER_INFO: the members of every producer group."""
        now = self._clock.monotonic()
        now_ms = self._clock.now_ms()
        answer = LongAnswer(_INSTEAD)
        for group in self._clients.producer_groups():
            members = LongAnswer(_INSTEAD)
            for one, member in list(self._clients.producers(group).items()):
                row = {
                    "clientId": member.client_id,
                    "language": _language(member.language),
                    "lastUpdateTimestamp": now_ms - int(max(now - member.seen_at, 0.0) * 1000),
                    "remoteIP": one.peer,
                    "version": member.version,
                }
                await members.add(bodies.dumps(row))
            await answer.add(members.joined(bodies.dumps(group) + b":[", b"]"))
        return reply(command, body=answer.joined(b'{"data":{', b"}}"))

    def subscription(self, connection: Connection, command: Command) -> Command:
        """QUERY_SUBSCRIPTION_BY_CONSUMER: a group's subscription to a topic; null when it has none."""
        header = headers.parse(command.code, command.ext)
        group, topic = header.text("group"), header.text("topic")
        found = self._clients.subscription(group, topic)
        answer = {"group": group, "subscriptionData": None if found is None else found.to_json(), "topic": topic}
        return reply(command, body=bodies.dumps(answer))


async def _connections(members: Mapping[Connection, GroupClient]) -> bytes:
    answer = LongAnswer(_INSTEAD)
    for connection, member in list(members.items()):
        row = {
            "clientAddr": connection.peer,
            "clientId": member.client_id,
            "language": _language(member.language),
            "version": member.version,
        }
        await answer.add(bodies.dumps(row))
    return answer.joined(b"[", b"]")


def _language(number: int) -> str:
    return (Language(number) if number in _LANGUAGES else Language.OTHER).name
