"""The offset at which a group continues in a queue, or begins when it never consumed the queue.

Consumers read from a slave and commit to it while the master does not answer (`replicas`); tools use masters only.
"""

from __future__ import annotations

from typing import TypeVar

from gantry.client.connections.replicas import Replicas
from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.requests import questions
from gantry.client.requests.question import Question
from gantry.client.settings import ConsumerSettings, StartFrom
from gantry.model.route import MessageQueue

T = TypeVar("T")

_TIMEOUT_S = 5.0
_HALF_AN_HOUR_MS = 30 * 60 * 1000


class RemoteOffsets:
    """A group's offsets at the queues' masters; with `replicas` also at slaves while a master does not answer."""

    def __init__(self, session: Session, routes: Routes, group: str, replicas: Replicas | None = None) -> None:
        self._session = session
        self._routes = routes
        self._group = group
        self._replicas = replicas

    async def start(self, queue: MessageQueue, settings: ConsumerSettings, now_ms: int) -> int:
        """Return the offset to begin at: the committed one, or where the broker lets the group begin, else by the
        settings.
        """
        if not settings.broadcast:
            found = await self._ask(queue, questions.begin(self._group, queue, settings))
            if found is not None:
                return found
        return await self._by_settings(queue, settings, now_ms)

    async def commit_start(self, queue: MessageQueue, settings: ConsumerSettings, now_ms: int) -> int:
        """Store where the group begins in the queue, if it has no offset there. Return where the group goes on.

        What another member stores at the same time counts: a later begin would skip what was sent behind its start.
        """
        found = await self._ask(queue, questions.begin(self._group, queue, settings))
        if found is not None:
            return found
        offset = await self._by_settings(queue, settings, now_ms)
        return await self._ask(queue, questions.commit_first(self._group, queue, offset))

    async def _by_settings(self, queue: MessageQueue, settings: ConsumerSettings, now_ms: int) -> int:
        if settings.start_from is StartFrom.FIRST:
            return await self.min_offset(queue)
        if settings.start_from is StartFrom.TIMESTAMP:
            instant_ms = settings.start_timestamp_ms
            return await self.offset_at(queue, now_ms - _HALF_AN_HOUR_MS if instant_ms is None else instant_ms)
        return await self.max_offset(queue)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset, None without one."""
        return await self._ask(queue, questions.committed(self._group, queue))

    async def commit(self, queue: MessageQueue, offset: int) -> bool:
        """Set the group's committed offset. Return False when only a slave received it."""
        question = questions.commit(self._group, queue, offset)
        if self._replicas is not None:
            return await self._replicas.tell(queue, question, self._session.timeout_s or _TIMEOUT_S)
        await self._ask(queue, question)
        return True

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest stored message."""
        return max(0, await self._ask(queue, questions.min_offset(queue)))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the next message to be stored."""
        return await self._ask(queue, questions.max_offset(queue))

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time (ms since the epoch)."""
        return await self._ask(queue, questions.offset_at(queue, timestamp_ms))

    async def _ask(self, queue: MessageQueue, question: Question[T]) -> T:
        timeout_s = self._session.timeout_s or _TIMEOUT_S
        if self._replicas is not None:
            return await self._replicas.ask(queue, question, timeout_s)
        return await self._session.ask(self._routes.master(queue), question, timeout_s)
