"""The puller: the caller names queue and offset, and keeps its own progress.

    async with Puller("audit", nameserver="127.0.0.1:9876") as puller:
        for queue in await puller.queues("Orders"):
            result = await puller.pull(queue, await puller.min_offset(queue))

A puller is not a member of the group: it gets no share of the queues and takes none from members.  The group is used
for committed offsets and for the brokers' permissions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from gantry.client.connections.replicas import Replicas
from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.consuming.offsets import RemoteOffsets
from gantry.client.filters import Filter, Sql, subscription_to
from gantry.client.lifecycle import Lifecycle
from gantry.client.requests.questions import PullSettings
from gantry.client.results import PullResult, PullStatus
from gantry.client.settings import check_group
from gantry.errors import RefusedError
from gantry.model.route import MessageQueue
from gantry.wire.codes import ResponseCode

__all__ = ["PullResult", "PullStatus", "Puller", "Sql"]

_TIMEOUT_S = 5.0


class Puller:
    """Pulls messages; an asynchronous context manager, or start() and stop() once each.

    timeout_s: of one request; a pull may take `wait_s` longer.
    """

    def __init__(self, group: str, *, nameserver: str | Sequence[str], timeout_s: float = _TIMEOUT_S) -> None:
        check_group(group)
        self.group = group
        self._timeout_s = timeout_s
        self._session = Session(nameserver, timeout_s=timeout_s)
        self._routes = Routes(self._session)
        self._life = Lifecycle(group, self._session, self._routes)
        self._replicas = Replicas(self._session, self._routes)
        self._offsets = RemoteOffsets(self._session, self._routes, group, self._replicas)

    async def start(self) -> None:
        """Start to refresh routes; connections are made when they are needed."""
        await self._life.start()

    async def stop(self) -> None:
        await self._life.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._life.leave(error)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic in order; RefusedError 17 when no broker has it."""
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
        """Return messages from `offset` on that match the tags or the `Sql`; waits up to `wait_s` when there are none.

        The broker compares hashes of tags: a message with another tag of the same hash may be included.
        """
        await self._routes.to_read(queue.topic)
        settings = PullSettings(self.group, subscription_to(queue.topic, tags), count_max, bytes_max, wait_s)
        result, _ = await self._replicas.pull(queue, offset, settings, None, self._timeout_s)
        return result

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that the group committed; None when it never did."""
        await self._routes.to_read(queue.topic)
        return await self._offsets.committed(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Set the group's committed offset."""
        await self._routes.to_read(queue.topic)
        try:
            await self._offsets.commit(queue, offset)
        except RefusedError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            # A broker creates a group at its first pull, where that is allowed.
            await self.pull(queue, offset, count_max=1)
            await self._offsets.commit(queue, offset)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest stored message."""
        await self._routes.to_read(queue.topic)
        return await self._offsets.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the next message to be stored."""
        await self._routes.to_read(queue.topic)
        return await self._offsets.max_offset(queue)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time (ms since the epoch)."""
        await self._routes.to_read(queue.topic)
        return await self._offsets.offset_at(queue, timestamp_ms)
