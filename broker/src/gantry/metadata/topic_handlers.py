"""Requests about topics: UPDATE_AND_CREATE_TOPIC (17), GET_ALL_TOPIC_CONFIG (21), DELETE_TOPIC_IN_BROKER (215),
GET_TOPIC_CONFIG (351).  RocketMQ: `AdminBrokerProcessor`.

The list of all topics is always complete: `totalTopicNum` in the reply is its length, so newer clients ask for no next
page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.errors import Refusal
from gantry.leaves.frames import Command
from gantry.metadata import longanswers
from gantry.metadata.attributes import altered
from gantry.metadata.offsets import Offsets
from gantry.metadata.topics import Topics
from gantry.model import names
from gantry.model.topic import MULTI_TAG, SINGLE_TAG, TopicConfig
from gantry.wire import bodies, headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import refusal, reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

# More than is in use; every client keeps an object for each queue of its topics.
QUEUES_MAX = 65_536
_PERM_MAX = 15


class TopicHandlers:
    """Handlers of administrators' requests about topics.  The router delays the reply until a change is saved."""

    def __init__(self, topics: Topics, offsets: Offsets) -> None:
        self._topics = topics
        self._offsets = offsets

    def update(self, connection: Connection, command: Command) -> Command:
        """UPDATE_AND_CREATE_TOPIC: make a topic or alter it."""
        header = headers.parse(command.code, command.ext)
        why = self._name_refusal(header.text("topic")) or _numbers_refusal(header)
        if why is not None:
            return refusal(command, why)
        known = self._topics.get(header.text("topic"))
        attributes = altered(None if known is None else known.attributes, header.text("attributes"))
        if isinstance(attributes, Refusal):
            return refusal(command, attributes)
        why = self._topics.put(
            TopicConfig(
                header.text("topic"),
                read_queues=header.integer("readQueueNums"),
                write_queues=header.integer("writeQueueNums"),
                perm=header.integer("perm"),
                filter_type=header.text("topicFilterType"),
                sys_flag=header.integer("topicSysFlag"),
                order=header.boolean("order"),
                attributes=attributes,
            )
        )
        self._topics.file.save_if_changed()
        return reply(command) if why is None else refusal(command, why)

    async def all(self, connection: Connection, command: Command) -> Command:
        """GET_ALL_TOPIC_CONFIG: the whole table.  A topic that changes meanwhile is in it in either state, and the data
        version is the older one, so that a client that compares versions asks again.
        """
        head, all_topics = self._topics.head(), list(self._topics.all())
        every = ((config.name, config.to_json()) for config in all_topics)
        body = await longanswers.table(head, "topicConfigTable", every, "ask topic by topic (351)")
        return reply(command, ext=headers.to_ext(totalTopicNum=len(all_topics)), body=body)

    def get(self, connection: Connection, command: Command) -> Command:
        """GET_TOPIC_CONFIG: the configuration of one topic, or TOPIC_NOT_EXIST."""
        name = headers.parse(command.code, command.ext).text("topic")
        config = self._topics.get(name)
        if config is None:
            return reply(command, ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        return reply(command, body=bodies.dumps(config.to_json()))

    async def delete(self, connection: Connection, command: Command) -> Command:
        """DELETE_TOPIC_IN_BROKER: delete a topic with its queues and offsets.  A missing topic is no error."""
        name = headers.parse(command.code, command.ext).text("topic")
        why = self._name_refusal(name)
        if why is not None:
            return refusal(command, why)
        self._topics.delete(name)
        self._topics.file.save_if_changed()
        await self._offsets.saved()
        return reply(command)

    def _name_refusal(self, name: str) -> Refusal | None:
        fault = names.topic_fault(name)
        if fault is not None:
            return Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if self._topics.is_system(name):
            return Refusal(ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic.")
        return None


def _numbers_refusal(header: headers.Header) -> Refusal | None:
    for name in ("readQueueNums", "writeQueueNums"):
        if not 0 <= header.integer(name) <= QUEUES_MAX:
            remark = f"{name} is {header.integer(name)}, from 0 to {QUEUES_MAX} are allowed"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
    if not 0 <= header.integer("perm") <= _PERM_MAX:
        return Refusal(ResponseCode.INVALID_PARAMETER, f"perm {header.integer('perm')} is no sum of 1, 2, 4 and 8")
    if header.text("topicFilterType") not in (SINGLE_TAG, MULTI_TAG):
        remark = f"topicFilterType {header.text('topicFilterType')[:40]!r} is neither {SINGLE_TAG} nor {MULTI_TAG}"
        return Refusal(ResponseCode.INVALID_PARAMETER, remark)
    return None
