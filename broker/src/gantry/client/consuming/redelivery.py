"""Redelivery of failed messages.

A failed message is sent back to its broker (CONSUMER_SEND_MSG_BACK).  The broker delivers it again later through the
group's retry topic, or keeps it as a dead letter.  When the broker has answered, the original is finished here, and
progress may pass it.

When the broker does not answer or refuses, the message stays here, unfinished, so that nothing is lost.  It is handed
out again here, after the delays of the settings; when it fails again it is sent back again.  A lost answer can
duplicate a message; both copies have the same id.  Members that broadcast have no retry topic, so they always retry
here.

Brokers support delay levels only.  A delay in seconds becomes the first level of RocketMQ's levels that is not shorter;
a broker with other levels (`messageDelayLevel`) uses the delay of its own level.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Collection

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.consuming.intake import Intake
from gantry.client.received import Again, ReceivedMessage
from gantry.client.requests import questions
from gantry.client.settings import ConsumerSettings
from gantry.errors import OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.model.route import MessageQueue

log = logging.getLogger(__name__)

LADDER_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)  # levels 1 to 18

_FAULTS = (RefusedError, UnreachableError, OutcomeUnknownError, RemoteProtocolError)
_TIMEOUT_S = 5.0  # RocketMQ's for this request


def level_of(after_s: float) -> int:
    """Return the first delay level that is not shorter, at most the last one."""
    return min(bisect_left(LADDER_S, after_s) + 1, len(LADDER_S))


class Redelivery:
    """The failed messages of one consumer, on their way to the broker or waiting here."""

    def __init__(
        self,
        session: Session,
        routes: Routes,
        group: str,
        settings: ConsumerSettings,
        hand_out: Callable[[Intake, ReceivedMessage], None],
    ) -> None:
        self._session = session
        self._routes = routes
        self._group = group
        self._settings = settings
        self._hand_out = hand_out
        self._waiting: dict[ReceivedMessage, asyncio.TimerHandle] = {}
        self._has_stopped = False

    async def take(self, intake: Intake, life: int, message: ReceivedMessage, wish: Again) -> bool:
        """Arrange that the message is delivered again. Return when that is arranged; False when it is too late.

        A cancelled call arranges it too, because no other code would.
        """
        if message.is_over or intake.is_dropped:
            return message.is_over
        message.is_over = True
        is_sent_back = False
        try:
            is_sent_back = not self._settings.broadcast and await self._is_sent_back(message, wish)
        finally:
            if is_sent_back:
                intake.finish(message.queue_offset, life)
            else:
                intake.put_down(message.queue_offset, life)
                if not intake.is_leaving and not self._has_stopped:
                    self._keep(intake, message, wish.after_s)
        return True

    def drop(self, queues: Collection[MessageQueue]) -> None:
        """Forget the waiting messages of these queues: another member gets them."""
        for message in [one for one in self._waiting if one.queue in queues]:
            self._waiting.pop(message).cancel()

    def stop(self) -> None:
        """Hand out no message again."""
        self._has_stopped = True
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    async def _is_sent_back(self, message: ReceivedMessage, wish: Again) -> bool:
        level = wish.level
        if level == 0 and wish.after_s is not None:
            level = level_of(wish.after_s)
        question = questions.send_back(self._group, message.stored, level, self._settings.redeliveries_max)
        try:
            await self._session.ask(self._routes.master(message.queue), question, _TIMEOUT_S)
        except _FAULTS as error:
            log.warning("%r: not taken back, it is retried here: %s", message, error)
            self._routes.doubt(message.queue.topic)
            return False
        return True

    def _keep(self, intake: Intake, message: ReceivedMessage, after_s: float | None) -> None:
        ladder = self._settings.retry_delays_s
        delay_s = ladder[min(message.attempt, len(ladder)) - 1] if after_s is None else after_s
        following = message.following()
        loop = asyncio.get_running_loop()
        self._waiting[following] = loop.call_later(delay_s, self._hand_out_again, intake, following)

    def _hand_out_again(self, intake: Intake, message: ReceivedMessage) -> None:
        del self._waiting[message]
        self._hand_out(intake, message)
