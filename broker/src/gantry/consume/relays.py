"""Requests that only a client can answer, forwarded to it.  RocketMQ: `AdminBrokerProcessor.callConsumer`,
`Broker2Client.getConsumeStatus`.

    GET_CONSUMER_RUNNING_INFO (307)              the state of a member of a group
    CONSUME_MESSAGE_DIRECTLY (309)               let a member consume one message now, to see whether it can
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223)   the offsets of members in a topic: each is asked by 221

The client is found by its id among the group's members, and asked over the connection of its heartbeats.  The answers
to 307 and 309 are returned unchanged; those to 221 are put together.  For 309 the broker adds the message, which the
tool names by its offset id.

At most 1 000 members are asked by 221, and a member whose answer has more than 64 KiB is left out.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

from gantry.errors import GantryError, OutcomeUnknownError, Refusal, UnreachableError
from gantry.leaves import records
from gantry.leaves.frames import Command
from gantry.metadata.clients import Clients
from gantry.metadata.topics import Topics
from gantry.model import documents
from gantry.store.keysearch import record_at, searched
from gantry.store.store import Store
from gantry.wire import bodies, headers
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import refusal, reply, request

if TYPE_CHECKING:
    from gantry.metadata.clients import GroupClient
    from gantry.transport.connection import Connection

ANSWER_S = 10.0  # RocketMQ's
VERSION_OF_RUNNING_INFO = 62  # RocketMQ: V3_1_8_SNAPSHOT
VERSION_OF_STATUS = 28  # RocketMQ: V3_0_7_SNAPSHOT
_MEMBERS_MAX = 1000
_TABLE_BYTES_MAX = 64 << 10  # of one member; such a map is read at a microsecond for each byte


class RelayHandlers:
    """Forwards administrators' requests to clients, and returns their answers."""

    def __init__(self, clients: Clients, topics: Topics, store: Store, broker_name: str) -> None:
        self._clients = clients
        self._topics = topics
        self._store = store
        self._broker_name = broker_name

    async def running_info(self, connection: Connection, command: Command) -> Command:
        """GET_CONSUMER_RUNNING_INFO: forward the request to a member of a group."""
        return await self._call(command, dict(command.ext), command.body)

    async def consume_directly(self, connection: Connection, command: Command) -> Command:
        """CONSUME_MESSAGE_DIRECTLY: send a message to one member, which answers with the result of its listener."""
        message_id = headers.parse(command.code, command.ext).text("msgId")
        found = await self._stored(message_id)
        if found is None:
            return reply(command, ResponseCode.SYSTEM_ERROR, f"no message has the offset id {message_id[:80]!r}")
        topic, body = found
        config = self._topics.get(topic)
        flags = {"brokerName": self._broker_name, "topicSysFlag": str(config.sys_flag if config else 0)}
        return await self._call(command, {**command.ext, **flags, "groupSysFlag": "0"}, body)

    async def status(self, connection: Connection, command: Command) -> Command:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: the offsets of each member, or of the named one, in a topic."""
        header = headers.parse(command.code, command.ext)
        group, topic, wanted = header.text("group"), header.text("topic"), header.text("clientAddr")
        online = self._clients.consumer_group(group)
        if online is None:
            remark = f"No Any Consumer online in the consumer group: [{group}]"
            return reply(command, ResponseCode.CONSUMER_NOT_ONLINE, remark)
        members = [
            one for one in online.members.items() if wanted in ("", one[1].client_id)
        ]
        asked = [self._status_of(*one, group, topic) for one in islice(members, _MEMBERS_MAX)]
        tables = [found for found in await asyncio.gather(*asked) if found is not None]
        rows = b",".join(bodies.dumps(client_id) + b":" + table for client_id, table in tables)
        return reply(command, body=b'{"consumerTable":{' + rows + b'},"messageQueueTable":{}}')

    async def _status_of(
        self, asked: Connection, member: GroupClient, group: str, topic: str
    ) -> tuple[str, bytes] | None:
        """Return a member's offsets as a map with queues as keys; None when it does not answer with one."""
        if member.version < VERSION_OF_STATUS:
            return None
        ext = headers.to_ext(topic=topic, group=group)
        try:
            answer = await asked.invoke(request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext), ANSWER_S)
            if answer.code != ResponseCode.SUCCESS or len(answer.body) > _TABLE_BYTES_MAX:
                return None
            table = documents.mapping(bodies.loads_object(answer.body), "messageQueueTable")
            rows = [(bodies.loads(queue.encode()), documents.integer(table, queue)) for queue in table]
        except (GantryError, ValueError):
            return None
        return member.client_id, bodies.object_keyed(rows)

    async def _stored(self, message_id: str) -> tuple[str, bytes] | None:
        """Return the topic and the record with this offset id; None when there is no such record."""
        try:
            offset = records.parse_offset_message_id(message_id)[2]
        except ValueError:
            return None
        found = await searched(record_at(self._store, offset))
        if found is None:
            return None
        fetched = self._store.reader.fetch(found.topic, found.queue_id, found.queue_offset, 1, 1, None)
        return found.topic, b"".join(fetched.buffers)

    async def _call(self, command: Command, ext: dict[str, str], body: bytes) -> Command:
        header = headers.parse(command.code, command.ext)
        group, client_id = header.text("consumerGroup"), header.text("clientId")
        found = self._found(group, client_id)
        if isinstance(found, Refusal):
            return refusal(command, found)
        try:
            answer = await found.invoke(request(command.code, ext, body), ANSWER_S)
        except OutcomeUnknownError as error:
            remark = f"The consumer <{group}> <{client_id[:80]}> did not answer: {error}"
            return reply(command, ResponseCode.CONSUME_MSG_TIMEOUT, remark)
        except UnreachableError as error:
            return reply(command, ResponseCode.SYSTEM_ERROR, f"The consumer <{group}> cannot be asked: {error}")
        return reply(command, answer.code, answer.remark, dict(answer.ext), answer.body)

    def _found(self, group: str, client_id: str) -> Connection | Refusal:
        found = self._clients.consumer(group, client_id)
        if found is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id[:80]}> not online")
        asked, member = found
        if member.version < VERSION_OF_RUNNING_INFO:
            remark = f"The Consumer <{group}> <{client_id[:80]}> Version {member.version} too low to finish"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return asked
