"""Long polling of POP: pops that wait, NOTIFICATION (200054) and POLLING_INFO (200055).

    200054   would a pop find messages?  Waits as a pop does and takes nothing; answers `hasMsg`, `pollingFull` when
             too many wait.  Ours: expType and exp, so that only messages that a filter wants count.
    200055   how many pops of a group wait at a queue (or with -1 for any queue); answers `pollingNum`

Source: RocketMQ's `NotificationProcessor`, `PollingInfoProcessor` and `PopLongPollingService`; facts 9.5.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gantry.clock import Clock
from gantry.errors import Refusal
from gantry.leaves import frames
from gantry.leaves.frames import Command
from gantry.pop import handle
from gantry.pop.held import NOTIFICATION, POP, HeldRequests, PollKey, waiting_s
from gantry.pop.pop import PopHandlers, PopRequest
from gantry.pop.taking import Wish
from gantry.wire import headers
from gantry.wire.command import refusal, reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection


class Polling:
    """Lets pops and notifications wait."""

    def __init__(self, held: HeldRequests, pops: PopHandlers, clock: Clock) -> None:
        self.held = held
        self.would_find_in_order: Callable[[Wish, str], bool] | None = None
        self._pops = pops
        self._clock = clock

    def hold(self, request: PopRequest) -> bool:
        """Keep a pop until it has messages or its time is over; False when too many wait."""
        place = PollKey(POP, request.wish.topic, request.wish.group, request.wish.queue_id)
        return self._hold(request, place, partial(self._pops.try_now, request))

    def _hold(self, request: PopRequest, place: PollKey, retry: Callable[[], bool]) -> bool:
        wait_s = waiting_s(request.until_ms, self._clock.now_ms())
        give_up = self._pops.time_out if place.kind == POP else self._nothing
        until = self._clock.monotonic() + wait_s
        return self.held.hold(request.connection, place, request.wish.wanted, until, retry, partial(give_up, request))

    def more_is_visible(self, group: str, topic: str, queue_id: int) -> None:
        """Try the pops of a group that wait for this queue: it has messages that could not be popped before."""
        normal, flag = handle.normal_topic(topic, group)
        self.held.wake(normal, group, queue_id if flag == handle.NORMAL else -1)

    def notification(self, connection: Connection, command: Command) -> Command | None:
        """NOTIFICATION; return the answer, or None when it is sent later."""
        request = self._pops.notified(connection, command)
        if isinstance(request, Refusal):
            return refusal(command, request)
        if self._has_messages(request):
            return _answer(command, has_messages=True)
        if self._clock.now_ms() >= request.until_ms:
            return _answer(command)
        place = PollKey(NOTIFICATION, request.wish.topic, request.wish.group, request.wish.queue_id)
        if not self._hold(request, place, partial(self._notify, request)):
            return _answer(command, is_full=True)
        return None

    def _has_messages(self, request: PopRequest) -> bool:
        if request.is_order and self.would_find_in_order is not None:
            return self.would_find_in_order(request.wish, request.attempt_id)
        return self._pops.taker.would_find(request.wish)

    def _notify(self, request: PopRequest) -> bool:
        if not self._has_messages(request):
            return False
        self._send(request, _answer(request.command, has_messages=True))
        return True

    def _nothing(self, request: PopRequest) -> None:
        self._send(request, _answer(request.command))

    def _send(self, request: PopRequest, answer: Command) -> None:
        if not request.command.is_oneway:
            request.connection.write(frames.encode(answer))

    def polling_info(self, connection: Connection, command: Command) -> Command:
        """POLLING_INFO: how many pops wait at a queue."""
        header = headers.parse(command.code, command.ext)
        refused = self._pops.refusal(header, 1)
        if refused is not None:
            return refusal(command, refused)
        place = PollKey(POP, header.text("topic"), header.text("consumerGroup"), max(-1, header.integer("queueId")))
        return reply(command, ext=headers.to_ext(pollingNum=self.held.at(place)))


def _answer(command: Command, *, has_messages: bool = False, is_full: bool = False) -> Command:
    return reply(command, ext=headers.to_ext(hasMsg=has_messages, pollingFull=is_full))
