"""Creates, changes and deletes topics and groups of one broker, and reports which of these was done.

A broker answers "success" whether it created a topic, changed it or had it already.  So its present configuration is
read before it is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import TypeVar

from gantry.client.connections.session import Session
from gantry.client.requests import admin_requests
from gantry.client.requests.question import Question
from gantry.errors import RefusedError
from gantry.model.subscription import GroupConfig
from gantry.model.topic import TopicConfig
from gantry.wire.codes import ResponseCode

T = TypeVar("T")


class Change(Enum):
    """What was done to a topic or a group."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


def summed(changes: Iterable[Change]) -> Change:
    """Return the result for all brokers: CREATED or UNCHANGED when it is so for every broker, else CHANGED."""
    kinds = set(changes)
    return kinds.pop() if len(kinds) == 1 else Change.CHANGED


class Changes:
    """Sends requests to one broker at a time; errors are those of `Session.ask`."""

    def __init__(self, session: Session, timeout_s: float) -> None:
        self._session = session
        self._timeout_s = timeout_s

    async def put_topic(self, address: str, wanted: TopicConfig) -> Change:
        """Create or change a topic; attributes that are not named in `wanted` keep their values."""
        found = await self._topic(address, wanted.name)
        if found is not None and found == replace(wanted, attributes={**found.attributes, **wanted.attributes}):
            return Change.UNCHANGED
        await self._ask(address, admin_requests.put_topic(wanted))
        return Change.CREATED if found is None else Change.CHANGED

    async def delete_topic(self, address: str, topic: str) -> bool:
        """Delete a topic. Return False when the broker had none; the request is sent even so, because queues may be
        left.
        """
        was_there = await self._topic(address, topic) is not None
        await self._ask(address, admin_requests.delete_topic(topic))
        return was_there

    async def put_group(self, address: str, wanted: GroupConfig) -> Change:
        """Create or change a consumer group."""
        found = await self._group(address, wanted.name)
        if found == wanted:
            return Change.UNCHANGED
        await self._ask(address, admin_requests.put_group(wanted))
        return Change.CREATED if found is None else Change.CHANGED

    async def delete_group(self, address: str, group: str, clean_offsets: bool) -> bool:
        """Delete a group. Return False when the broker had none; the request is sent even so, because offsets may be
        left.
        """
        was_there = await self._group(address, group) is not None
        await self._ask(address, admin_requests.delete_group(group, clean_offsets))
        return was_there

    async def _topic(self, address: str, topic: str) -> TopicConfig | None:
        one, table = admin_requests.topic_config(topic), admin_requests.topic_table()
        return await self._one_of(address, topic, one, table, ResponseCode.TOPIC_NOT_EXIST)

    async def _group(self, address: str, group: str) -> GroupConfig | None:
        one, table = admin_requests.group_config(group), admin_requests.group_list()
        return await self._one_of(address, group, one, table, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)

    async def _one_of(
        self, address: str, name: str, one: Question[T], table: Question[dict[str, T]], absent: int
    ) -> T | None:
        """Ask for one entry, or for the whole table: RocketMQ's brokers before 5.0 have no request for one."""
        try:
            return await self._ask(address, one)
        except RefusedError as error:
            if error.code == absent:
                return None
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        return (await self._ask(address, table)).get(name)

    async def _ask(self, address: str, question: Question[T]) -> T:
        return await self._session.ask(address, question, self._timeout_s)
