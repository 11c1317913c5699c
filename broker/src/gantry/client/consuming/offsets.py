"""Where a group continues in a queue, and where it begins when it never was there.

Consumers also take a slave's word, and tell a slave, while the master is away (`replicas`); tools ask masters only.
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


class Offsets:
    """A group's offsets, kept by the master of each queue; with `replicas` by a slave while the master is away."""

    def __init__(self, session: Session, routes: Routes, group: str, replicas: Replicas | None = None) -> None:
        self._session = session
        self._routes = routes
        self._group = group
        self._replicas = replicas

    async def start(self, queue: MessageQueue, settings: ConsumerSettings, now_ms: int) -> int:
        """The offset to begin at: the committed one, else what the settings say."""
        if not settings.broadcast:
            is_from_last = settings.start_from is StartFrom.LAST
            committed = await self.committed(queue, young_from_zero=is_from_last)
            if committed is not None:
                return committed
        if settings.start_from is StartFrom.FIRST:
            return await self.min_offset(queue)
        if settings.start_from is StartFrom.TIMESTAMP:
            instant_ms = settings.start_timestamp_ms
            return await self.offset_at(queue, now_ms - _HALF_AN_HOUR_MS if instant_ms is None else instant_ms)
        return await self.max_offset(queue)

    async def committed(self, queue: MessageQueue, young_from_zero: bool = False) -> int | None:
        """The committed offset, None without one; `young_from_zero` as in `questions.committed`."""
        return await self._ask(queue, questions.committed(self._group, queue, young_from_zero))

    async def commit(self, queue: MessageQueue, offset: int) -> bool:
        """Let the group continue at `offset`; False when only a slave heard it."""
        question = questions.commit(self._group, queue, offset)
        if self._replicas is not None:
            return await self._replicas.tell(queue, question, self._session.timeout_s or _TIMEOUT_S)
        await self._ask(queue, question)
        return True

    async def min_offset(self, queue: MessageQueue) -> int:
        """The oldest message that is still there."""
        return max(0, await self._ask(queue, questions.min_offset(queue)))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Where the next message will stand."""
        return await self._ask(queue, questions.max_offset(queue))

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message stored at or after an instant."""
        return await self._ask(queue, questions.offset_at(queue, timestamp_ms))

    async def _ask(self, queue: MessageQueue, question: Question[T]) -> T:
        timeout_s = self._session.timeout_s or _TIMEOUT_S
        if self._replicas is not None:
            return await self._replicas.ask(queue, question, timeout_s)
        return await self._session.ask(self._routes.master(queue), question, timeout_s)
