"""Resetting a group's offsets: INVOKE_BROKER_TO_RESET_OFFSET (222).  RocketMQ: `AdminBrokerProcessor.resetOffset`,
and of 5.x `resetOffsetInner`.

The group's offsets change at once, also when no member is online.  Members have to drop the messages that they have,
and are told in one of two ways:

    a member waits at the queue's end    its held pull is answered PULL_OFFSET_MOVED (21) with the new offset
    it has messages in work              RESET_CONSUMER_CLIENT_OFFSET (220), one-way, with the offsets of such queues

Until a queue's member has pulled again, commits in that queue are ignored (see `metadata.offsets`): a member that
does not know yet would undo the reset.  So a client that does not support 220 moves as well, with its next pull.
RocketMQ's brokers do either: before 5.3 they send 220, which stops a Java consumer for ten seconds; since
then they wait for the next pull, which may take as long as the messages in work.

Members of a broadcasting group keep their offsets themselves, and are all told by 220.  Where `isForce` is missing or
false no message is skipped: a queue is only set back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from gantry.leaves.frames import Command
from gantry.metadata.clients import Clients, ConsumerGroup
from gantry.metadata.groups import Groups
from gantry.metadata.offsets import NOT_COMMITTED, Offsets
from gantry.metadata.topics import Topics
from gantry.model.route import MessageQueue
from gantry.store.keysearch import searched
from gantry.store.store import Store
from gantry.store.timesearch import offset_by_time
from gantry.wire import bodies, headers
from gantry.wire.codes import Language, RequestCode, ResponseCode
from gantry.wire.command import oneway, reply

if TYPE_CHECKING:
    from gantry.consume.hold import HeldPulls
    from gantry.transport.connection import Connection

VERSION_OF_RESET = 28  # RocketMQ: V3_0_7_SNAPSHOT; older clients do not know 220
_LATEST_MS = -1
# A search reads some twenty records.
_SEARCHED_AT_ONCE = 8


class ResetHandlers:
    """Handler of administrators' resets of groups, also while their members are consuming."""

    def __init__(
        self,
        store: Store,
        offsets: Offsets,
        topics: Topics,
        groups: Groups,
        clients: Clients,
        held: HeldPulls,
        broker_name: str,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._held = held
        self._broker_name = broker_name
        self.on_reset: Callable[[str, str], object] = lambda topic, group: None  # called when offsets were set

    async def reset(self, connection: Connection, command: Command) -> Command:
        """INVOKE_BROKER_TO_RESET_OFFSET: reset to a time, -1 being the end, or one queue to an offset; answer with the
        new offset of each queue.
        """
        header = headers.parse(command.code, command.ext)
        group, topic = header.text("group"), header.text("topic")
        config = self._topics.get(topic)
        if config is None:
            return reply(command, ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if self._groups.get(group) is None:
            return reply(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        queue_id, wanted = header.integer("queueId"), header.integer("offset")
        if queue_id >= config.read_queues:
            remark = f"queueId[{queue_id}] is illegal, {topic} has {config.read_queues} queues"
            return reply(command, ResponseCode.INVALID_PARAMETER, remark)
        if queue_id >= 0 and wanted >= 0:
            low, high = self._store.queue_range(topic, queue_id) or (0, 0)
            if not low <= wanted <= high + 1:
                remark = f"Target offset {wanted} not in consume queue range [{low}-{high}]"
                return reply(command, ResponseCode.SYSTEM_ERROR, remark)
            targets = {queue_id: min(wanted, high)}
        else:
            queues = range(config.read_queues) if queue_id < 0 else range(queue_id, queue_id + 1)
            targets = await self._at(topic, queues, header.integer("timestamp"))
            if not header.boolean("isForce"):
                targets = {one: self._not_ahead(group, topic, one, target) for one, target in targets.items()}
        # No await from here on: commits that came meanwhile are overwritten like earlier ones.
        if self._topics.get(topic) is None:
            return reply(command, ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        self._move(group, topic, targets, header.integer("timestamp"))
        await self._offsets.saved()
        return reply(command, body=self._body(topic, targets, command.language))

    async def _at(self, topic: str, queues: range, at_ms: int) -> dict[int, int]:
        targets = {}
        for number, queue_id in enumerate(queues, 1):
            if at_ms < 0:
                targets[queue_id] = (self._store.queue_range(topic, queue_id) or (0, 0))[1]
            else:
                targets[queue_id] = await searched(offset_by_time(self._store, topic, queue_id, at_ms))
            if number % _SEARCHED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return targets

    def _not_ahead(self, group: str, topic: str, queue_id: int, target: int) -> int:
        committed = self._offsets.query(group, topic, queue_id)
        return target if committed == NOT_COMMITTED else min(committed, target)

    def _move(self, group: str, topic: str, targets: dict[int, int], at_ms: int) -> None:
        online = self._clients.consumer_group(group)
        is_shared = online is not None and not online.consumption.is_broadcasting
        for queue_id, target in targets.items():
            self._offsets.reset(group, topic, queue_id, target, marks=is_shared)
        self.on_reset(topic, group)
        if online is None:
            return
        unheard = {
            queue_id: target
            for queue_id, target in targets.items()
            if not (is_shared and self._held.release_group(topic, queue_id, group))
        }
        if unheard:
            self._push(online, topic, unheard, at_ms)

    def _push(self, group: ConsumerGroup, topic: str, targets: dict[int, int], at_ms: int) -> None:
        ext = headers.to_ext(topic=topic, group=group.name, timestamp=at_ms, isForce=True)
        for connection, member in list(group.members.items()):
            if member.version >= VERSION_OF_RESET:
                body = self._body(topic, targets, member.language)
                connection.send_oneway(oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, dict(ext), body))
        for queue_id in targets:
            self._offsets.was_told(group.name, topic, queue_id)

    def _body(self, topic: str, targets: dict[int, int], language: int) -> bytes:
        queues = [
            (MessageQueue(topic, self._broker_name, queue_id).to_json(), target) for queue_id, target in targets.items()
        ]
        if language == Language.CPP:
            # RocketMQ: `ResetOffsetBodyForC`; C++ has no maps with objects as keys.
            return bodies.dumps({"offsetTable": [{**queue, "offset": target} for queue, target in queues]})
        return b'{"offsetTable":' + bodies.object_keyed(queues) + b"}"
