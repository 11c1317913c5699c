"""Where a group continues in a queue, and where it begins when it never was there."""

from __future__ import annotations

from gantry.client import questions
from gantry.client.routes import Routes
from gantry.client.session import Session
from gantry.client.settings import ConsumerSettings, StartFrom
from gantry.model.route import MessageQueue

_TIMEOUT_S = 5.0
_HALF_AN_HOUR_MS = 30 * 60 * 1000


class Offsets:
    """A group's offsets, kept by the master of each queue."""

    def __init__(self, session: Session, routes: Routes, group: str) -> None:
        self._session = session
        self._routes = routes
        self._group = group

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
        question = questions.committed(self._group, queue, young_from_zero)
        return await self._session.ask(self._routes.master(queue), question, _TIMEOUT_S)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Let the group continue at `offset`."""
        question = questions.commit(self._group, queue, offset)
        await self._session.ask(self._routes.master(queue), question, _TIMEOUT_S)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The oldest message that is still there."""
        found = await self._session.ask(self._routes.master(queue), questions.min_offset(queue), _TIMEOUT_S)
        return max(0, found)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Where the next message will stand."""
        return await self._session.ask(self._routes.master(queue), questions.max_offset(queue), _TIMEOUT_S)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message stored at or after an instant."""
        question = questions.offset_at(queue, timestamp_ms)
        return await self._session.ask(self._routes.master(queue), question, _TIMEOUT_S)
