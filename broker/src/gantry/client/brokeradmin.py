"""Administration of single brokers by address, for callers that know the masters without a name server.

    async with BrokerAdmin() as brokers:
        if await brokers.topic("10.0.0.7:10911", "Orders") is None:
            await brokers.put_topic("10.0.0.7:10911", TopicConfig("Orders"), {})

Each call sends one request to one broker (`lag`: one for each page).  There is no retry and no other member is asked;
errors are those of `Session.ask`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, TypeVar

from gantry.client.lifecycle import to_the_end
from gantry.client.requests import admin_requests, lag_requests, questions
from gantry.client.requests.lag_requests import QueueLag, Target
from gantry.client.requests.question import Question
from gantry.errors import RefusedError
from gantry.model.route import MessageQueue
from gantry.model.subscription import GroupConfig
from gantry.model.topic import TopicConfig
from gantry.transport.client import RemotingClient
from gantry.wire.codes import ResponseCode

T = TypeVar("T")


class BrokerAdmin:
    """Sends requests to brokers; an asynchronous context manager. Connections are made when they are needed."""

    def __init__(self, timeout_s: float = 5.0, connect_s: float = 3.0) -> None:
        self._remoting = RemotingClient(connect_s=connect_s)
        self._timeout_s = timeout_s

    async def close(self) -> None:
        await to_the_end(self._remoting.close())  # also when this call is cancelled

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def topic(self, address: str, topic: str) -> TopicConfig | None:
        """Return the broker's configuration of a topic; None when it does not have it."""
        question = admin_requests.topic_config(topic)
        return await self._unless(address, question, ResponseCode.TOPIC_NOT_EXIST)

    async def put_topic(self, address: str, config: TopicConfig, attributes: Mapping[str, str | None]) -> None:
        """Create or change a topic; only these attributes change, None removes one."""
        await self._ask(address, admin_requests.alter_topic(config, attributes))

    async def delete_topic(self, address: str, topic: str) -> None:
        """Delete a topic with its messages; no error when there is none."""
        await self._ask(address, admin_requests.delete_topic(topic))

    async def forget_route(self, nameserver: str, topic: str) -> None:
        """Make a name server remove the route of a deleted topic."""
        await self._ask(nameserver, admin_requests.delete_topic_route(topic))

    async def queue_range(self, address: str, queue: MessageQueue) -> tuple[int, int]:
        """Return the offset of the queue's oldest message and of the next one to be stored."""
        low = await self._ask(address, questions.min_offset(queue))
        return low, await self._ask(address, questions.max_offset(queue))

    async def group(self, address: str, group: str) -> GroupConfig | None:
        """Return the broker's configuration of a consumer group; None when it does not have it."""
        question = admin_requests.group_config(group)
        return await self._unless(address, question, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)

    async def put_group(self, address: str, config: GroupConfig) -> None:
        """Create or change a consumer group."""
        await self._ask(address, admin_requests.put_group(config))

    async def delete_group(self, address: str, group: str) -> None:
        """Delete a consumer group with its offsets; no error when there is none."""
        await self._ask(address, admin_requests.delete_group(group, clean_offsets=True))

    async def members(self, address: str, group: str) -> set[str]:
        """Return the client ids of the group's members that are connected to this broker."""
        return {each.client_id for each in await self._ask(address, lag_requests.consumer_connections(group))}

    async def lag(self, address: str, broker: str, *, group: str = "", topic: str = "") -> list[QueueLag]:
        """Return the lag of every group in every queue of this broker, or of one group or topic only."""
        found: list[QueueLag] = []
        following = 0
        while following >= 0:
            page = await self._ask(address, lag_requests.lag(broker, group, topic, following))
            found += page.queues
            following = page.following
        return found

    async def reset(self, address: str, group: str, topic: str, at_ms: int) -> None:
        """Move a group's offsets to a time (ms since the epoch; -1: the end); running members move too."""
        await self._ask(address, lag_requests.reset(group, topic, Target(at_ms)))

    async def _unless(self, address: str, question: Question[T], absent: int) -> T | None:
        try:
            return await self._ask(address, question)
        except RefusedError as error:
            if error.code == absent:
                return None
            raise

    async def _ask(self, address: str, question: Question[T]) -> T:
        return question.read(await self._remoting.invoke(address, question.command, self._timeout_s))
