"""Pulling without a group's machinery: the caller names queue and offset, and keeps its own progress.

    async with Puller("audit", nameserver="127.0.0.1:9876") as puller:
        for queue in await puller.queues("Orders"):
            result = await puller.pull(queue, await puller.min_offset(queue))

A puller is no member of the group: it gets no share of queues and takes none from others.  The group is
a name for committed offsets, and what brokers check permissions by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from gantry.client.connections.replicas import Replicas
from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.consuming.offsets import Offsets
from gantry.client.filters import Filter, Sql, subscription_to
from gantry.client.requests.questions import PullSettings
from gantry.client.results import PullResult, PullStatus
from gantry.client.settings import check_group
from gantry.errors import RefusedError
from gantry.model.route import MessageQueue
from gantry.wire.codes import ResponseCode

__all__ = ["PullResult", "PullStatus", "Puller", "Sql"]

_TIMEOUT_S = 5.0


class Puller:
    """Pulls; an asynchronous context manager, or start() and stop() once each.

    `timeout_s` is of one request; a pull may take `wait_s` longer.
    """

    def __init__(self, group: str, *, nameserver: str | Sequence[str], timeout_s: float = _TIMEOUT_S) -> None:
        check_group(group)
        self.group = group
        self._timeout_s = timeout_s
        self._session = Session(nameserver, timeout_s=timeout_s)
        self._routes = Routes(self._session)
        self._replicas = Replicas(self._session, self._routes)
        self._offsets = Offsets(self._session, self._routes, group, self._replicas)

    async def start(self) -> None:
        """Begin to keep routes fresh."""
        await self._session.start()
        await self._routes.start()

    async def stop(self) -> None:
        """Close the connections."""
        await self._replicas.close()
        await self._routes.close()
        await self._session.close()

    async def __aenter__(self) -> Self:
        """start()"""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """stop()"""
        await self.stop()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, in their order; RefusedError 17 when nobody has it."""
        return list(await self._routes.to_read(topic))

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        tags: Filter = "*",
        count_max: int = 32,
        bytes_max: int = 1 << 20,
        wait_s: float = 0.0,
    ) -> PullResult:
        """The messages from `offset` on that have one of the tags, or fulfil an `Sql`; waits up to `wait_s` while there
        are none.

        The broker compares hashes of tags: a message with another tag of the same hash may be among them.
        """
        await self._routes.to_read(queue.topic)
        settings = PullSettings(self.group, subscription_to(queue.topic, tags), count_max, bytes_max, wait_s)
        result, _ = await self._replicas.pull(queue, offset, settings, None, self._timeout_s)
        return result

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset that the group committed, None when it never did."""
        await self._routes.to_read(queue.topic)
        return await self._offsets.committed(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Let the group continue at `offset`."""
        await self._routes.to_read(queue.topic)
        try:
            await self._offsets.commit(queue, offset)
        except RefusedError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            # A broker makes a group, where that is allowed, when the group pulls for the first time.
            await self.pull(queue, offset, count_max=1)
            await self._offsets.commit(queue, offset)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The oldest message that is still there."""
        await self._routes.to_read(queue.topic)
        return await self._offsets.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Where the next message will stand."""
        await self._routes.to_read(queue.topic)
        return await self._offsets.max_offset(queue)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message stored at or after an instant."""
        await self._routes.to_read(queue.topic)
        return await self._offsets.offset_at(queue, timestamp_ms)
