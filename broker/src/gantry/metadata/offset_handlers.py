"""Requests for consumer offsets: QUERY_CONSUMER_OFFSET (14), UPDATE_CONSUMER_OFFSET (15),
GET_ALL_CONSUMER_OFFSET (43).  RocketMQ: `ConsumerManageProcessor`, `AdminBrokerProcessor`.

A group without an offset in a queue begins where `starts` says, and else as its clients are configured to: 22 tells
them so.  Where it begins is stored as its offset.  Members that are pushed to or pop, and say that they begin at the
end, are told the end, which is stored: a client that learns it by itself (30) has nothing to commit before its first
message, and another member, or the same one after a crash, would begin at a later end.

The first offset of a group in a queue is durable before it is answered, whether a client commits it or it is decided
here: it separates "go on" from "begin at the end".  Without it, a group that comes back after a crash would skip what
came meanwhile.  Later offsets are saved every few seconds: a crash only repeats messages.  Nobody waits for another
group's first offset: while the disk hangs, groups that have begun go on.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from gantry.errors import Refusal
from gantry.leaves.frames import Command
from gantry.metadata import longanswers
from gantry.metadata.clients import Clients
from gantry.metadata.commits import GroupCommits
from gantry.metadata.groups import Groups
from gantry.metadata.offsets import NOT_COMMITTED, Offsets
from gantry.metadata.savedtogether import SavedTogether
from gantry.metadata.starts import GroupStarts
from gantry.metadata.topics import Topics
from gantry.model import names
from gantry.model.subscription import CONSUME_PASSIVELY, CONSUME_POP, FROM_LAST_OFFSET
from gantry.wire import headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import refusal, reply
from gantry.wire.headers import Header

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

_NOT_FOUND = "Not found, maybe this group consumer boot first"
_NOT_SAVED = "the group's first offset in this queue is not on the disk yet; look at the disk and ask again"


class OffsetHandlers:
    """Handlers of requests for offsets; `firsts`: the saves of groups' first offsets in queues."""

    def __init__(
        self,
        offsets: Offsets,
        topics: Topics,
        groups: Groups,
        starts: GroupStarts,
        commits: GroupCommits,
        firsts: SavedTogether,
        clients: Clients,
    ) -> None:
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._starts = starts
        self._commits = commits
        self._firsts = firsts
        self._clients = clients

    def query(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """QUERY_CONSUMER_OFFSET: where to go on; 22 tells a client to begin as it is configured.

        gantryBegin: a client that begins neither at the end nor at the first message asks where the group has to begin
        all the same.  gantryBegan of the answer: since when (ms) the group reads the topic, for other brokers.
        """
        header = headers.parse(command.code, command.ext)
        group, topic, queue_id = header.text("consumerGroup"), header.text("topic"), header.integer("queueId")
        offset = self._offsets.query(group, topic, queue_id)
        # A starting member queries first; after that its pull at the offset need not be answered with a reset.
        self._offsets.was_told(group, topic, queue_id)
        if offset != NOT_COMMITTED:
            answer = reply(command, ext=headers.to_ext(offset=offset) | self._began(group, topic))
            return self._when_saved(answer, group, topic)
        if header.boolean("setZeroIfNotFound") or header.boolean("gantryBegin"):
            return self._begin(command, header)
        return reply(command, ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND, self._began(group, topic))

    def _began(self, group: str, topic: str) -> dict[str, str]:
        began = self._offsets.began(group, topic)
        return {} if began is None else headers.to_ext(gantryBegan=began.at_ms)

    async def _begin(self, command: Command, header: Header) -> Command:
        """Decide where a group begins that has no offset in the queue, and store it."""
        group, topic, queue_id = header.text("consumerGroup"), header.text("topic"), header.integer("queueId")
        starts, offset = self._starts, self._starts.given(group, topic, queue_id)
        is_young = header.boolean("setZeroIfNotFound") and starts.is_young(topic, queue_id)
        if offset is None and not is_young and starts.is_unknown(group, topic):
            await starts.learn(group, topic)
            offset = self._offsets.of(group, topic).get(queue_id)
        if offset is None and is_young:
            offset = 0
        if offset is None and header.boolean("setZeroIfNotFound") and self._begins_at_end(group, topic):
            offset = starts.end(topic, queue_id)
        if offset is None:
            return reply(command, ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND, self._began(group, topic))
        if self._groups.get(group) is not None:  # tools may ask for groups that do not exist
            is_new = self._offsets.query(group, topic, queue_id) == NOT_COMMITTED
            if is_new and self._offsets.has_room(group, topic):
                self._offsets.commit(group, topic, queue_id, offset)
        newest = self._offsets.firsts.newest(group, topic)
        return await self._saved(reply(command, ext=headers.to_ext(offset=offset)), newest)

    def _begins_at_end(self, group: str, topic: str) -> bool:
        """Return whether the group's members would begin at the end, by what they say in heartbeats, and would not
        store that before their first commit.
        """
        entry = self._clients.consumer_group(group)
        if entry is None or names.is_retry_topic(topic) or not self._offsets.has_room(group, topic):
            return False
        how = entry.consumption
        return (
            how.consume_from_where == FROM_LAST_OFFSET
            and how.consume_type in (CONSUME_PASSIVELY, CONSUME_POP)
            and not how.is_broadcasting
        )

    def update(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """UPDATE_CONSUMER_OFFSET: store the next offset of a group in a queue.

        gantryFirst: only where the group has none; `offset` of the answer is the one that the group has then.  Several
        members of a new group store where it begins, and the later begin of one would skip messages for the others.
        """
        header = headers.parse(command.code, command.ext)
        group, topic = header.text("consumerGroup"), header.text("topic")
        queue_id, offset = header.integer("queueId"), header.integer("commitOffset")
        why = self._why_not(group, topic, queue_id)
        if why is not None:
            return refusal(command, why)
        is_first = header.boolean("gantryFirst")
        known = self._offsets.query(group, topic, queue_id) if is_first else NOT_COMMITTED
        if known != NOT_COMMITTED:
            return self._when_saved(reply(command, ext=headers.to_ext(offset=known)), group, topic)
        if self._offsets.is_reset(group, topic, queue_id):
            return reply(command, remark="Offset has been previously reset")
        remark = self._commits.take(group, topic, queue_id, offset)
        if remark:
            return reply(command, ResponseCode.INVALID_PARAMETER, remark)
        answer = reply(command, ext=headers.to_ext(offset=offset) if is_first else None)
        return answer if command.is_oneway else self._when_saved(answer, group, topic)

    def _when_saved(self, answer: Command, group: str, topic: str) -> Command | Awaitable[Command]:
        """Return the answer, later while a first offset of the group in the topic is not durable."""
        newest = self._offsets.firsts.newest(group, topic)
        return answer if self._firsts.has(newest) else self._saved(answer, newest)

    async def _saved(self, answer: Command, number: int) -> Command:
        if await self._firsts.saved(number):
            return answer
        return reply(answer, ResponseCode.SYSTEM_ERROR, _NOT_SAVED)

    async def all(self, connection: Connection, command: Command) -> Command:
        """GET_ALL_CONSUMER_OFFSET: all offsets, in the form of consumerOffset.json."""
        offsets = self._offsets
        body = await longanswers.tables(offsets.head(), offsets.tables(), "ask group by group (208)")
        return reply(command, body=body)

    def _why_not(self, group: str, topic: str, queue_id: int) -> Refusal | None:
        if self._groups.get(group) is None:
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if self._topics.get(topic) is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        queues = self._starts.queues(topic)
        if not 0 <= queue_id < queues:
            remark = f"queueId[{queue_id}] is illegal, {topic} has {queues} queues"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        return None
