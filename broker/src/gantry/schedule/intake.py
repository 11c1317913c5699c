"""Taking in delayed messages: they are disguised, left unchanged because they are due, or refused.

Admission has checked topic, queue and size before.  Refused here, with RocketMQ's codes: a delay that is not a number,
one that is too long, a cancel without a time, for a past one, or with a longer name than a topic and a UNIQ_KEY make
(13); a message with a time when `pending_max` of them are waiting (1: each needs memory until it is delivered).
Waiting are those that the timer knows, those that are appended and not dispatched (`waiting`), and those of this turn
of the loop that are hidden and not appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from gantry.append.admit import UNIQUE_KEY_BYTES_MAX
from gantry.clock import SteadyClock
from gantry.errors import Refusal
from gantry.leaves import delays, properties
from gantry.model import httpqueue, names
from gantry.schedule import disguise
from gantry.schedule.rules import DelayRules
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.schedule.book import DelayBook
    from gantry.store.store import Store

_DELAYS = properties.TRAIT_DELAY | properties.TRAIT_TIMER_CANCEL
_TOPICS = names.SCHEDULE_TOPIC, names.TIMER_TOPIC
_CANCEL_WITHOUT_TIME = Refusal(
    ResponseCode.MESSAGE_ILLEGAL,
    "a cancel (TIMER_DEL_UNIQKEY) says in TIMER_DELIVER_MS when the message would be delivered, "
    "which has to be in the future",
)


_CANCEL_BYTES_MAX = names.TOPIC_BYTES_MAX + UNIQUE_KEY_BYTES_MAX  # it names a topic and a message of it


def longest_ms(rules: DelayRules, is_http_queue: bool) -> int:
    """Return how far ahead a message of a topic may be delivered, in ms."""
    return max(rules.delay_max_ms, httpqueue.DELAY_MS_MAX) if is_http_queue else rules.delay_max_ms


def waiting(store: Store, book: DelayBook) -> int:
    """Return how many timer messages of the log are not delivered; a cancel counts until it is dispatched."""
    return book.timer.pending + max(0, store.next_queue_offset(names.TIMER_TOPIC, 0) - book.timer_end)


class DelayIntake:
    """Takes delayed messages in; `waiting` returns how many timer messages of the log are not delivered."""

    def __init__(
        self,
        clock: SteadyClock,
        rules: DelayRules,
        waiting: Callable[[], int],
        broker_name: str,
        is_http_queue: Callable[[str], bool] = lambda topic: False,
    ) -> None:
        self._clock = clock
        self._rules = rules
        self._waiting = waiting
        self.hidden = 0  # timer messages that are to be appended
        self._broker_name = broker_name
        self._is_http_queue = is_http_queue

    def wants(self, send: Send) -> bool:
        """Whether an admitted message asks for a delay; a dead letter is not delayed, whatever it asks for."""
        return send.traits & _DELAYS != 0 and not names.is_dlq_topic(send.topic)

    def fault(self, send: Send) -> Refusal | None:
        """Return why the message cannot be delayed, now or, for a half, when it is committed; None when it can."""
        delay = disguise.requested_delay(send.properties, self._clock.now_ms())
        if isinstance(delay, str):
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, delay)
        ahead_ms = self._ahead_ms(delay)
        if send.traits & properties.TRAIT_TIMER_CANCEL:
            if delay.level or ahead_ms <= 0:
                return _CANCEL_WITHOUT_TIME
            name = properties.get(send.properties, disguise.CANCELS) or b""
            if len(name) > _CANCEL_BYTES_MAX:
                return Refusal(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"the message's TIMER_DEL_UNIQKEY has {len(name)} bytes, {_CANCEL_BYTES_MAX} are allowed",
                )
        return None if delay.level or ahead_ms <= 0 else self._time_fault(ahead_ms, send.topic)

    def _ahead_ms(self, delay: disguise.RequestedDelay) -> int:
        """Return how far a time is away, by the clock that it is a time of."""
        return delay.at_ms - (self._clock.wall_ms() if delay.is_moment else self._clock.now_ms())

    def _time_fault(self, ahead_ms: int, topic: str) -> Refusal | None:
        rules = self._rules
        if not rules.has_times:
            return Refusal(
                ResponseCode.SYSTEM_ERROR, "times of delivery are switched off (delays.times); use a delay level"
            )
        allowed_ms = longest_ms(rules, self._is_http_queue(topic))
        if ahead_ms > allowed_ms:
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"delivery in {ahead_ms / 1000:.0f} s, {allowed_ms // 1000} s ahead are allowed",
            )
        if self._waiting() + self.hidden >= rules.pending_max:
            return Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"{rules.pending_max} messages wait for a time of their own, which is the limit; "
                "use a delay level, or raise delays.pending_max",
            )
        return None

    def take(self, send: Send) -> Refusal | None:
        """Disguise the message unless it is due; return why it is refused, else None."""
        refusal = self.fault(send)
        if refusal is None:
            self.redirect(send)
            self.hid([send])
        return refusal

    def hid(self, sends: Sequence[Send]) -> None:
        """Count these hidden messages, which are to be appended."""
        self.hidden += [send.topic for send in sends].count(names.TIMER_TOPIC)

    def appended(self) -> None:
        """Count no message as hidden any more: the log has them, or they were refused."""
        self.hidden = 0

    def redirect(self, send: Send) -> None:
        """Disguise a message that may not be refused any more (a committed half) unless it is due."""
        delay = disguise.requested_delay(send.properties, self._clock.now_ms()) if self.wants(send) else ""
        if isinstance(delay, str):
            return
        if delay.level:
            disguise.by_level(send, delay.level, len(self._rules.levels_ms))
        elif self._ahead_ms(delay) > 0:
            disguise.by_time(send, delay.at_ms)

    def hide(self, sends: Iterable[Send]) -> int:
        """Disguise as many messages from the first on as need no closer look by `take`; return how many.

        Of an iterator the one that ends it is taken as well.  The caller tells `hid` which ones these were.
        """
        rules, now_ms = self._rules, self._clock.now_ms()
        if self._clock.is_ahead:  # moments and durations have different clocks
            next(iter(sends), None)
            return 0
        ahead_ms_max = rules.delay_max_ms if rules.has_times else -1
        room = max(0, rules.pending_max - self._waiting() - self.hidden)
        return delays.hide(sends, now_ms, len(rules.levels_ms), ahead_ms_max, room, _TOPICS)

    def handles(self, sends: Sequence[Send]) -> Sequence[bytes]:
        """Return the recall handles that the replies name; empty for messages without one.

        RocketMQ: there is none for messages with a delay level, nor for redeliveries.
        """
        if not self._rules.is_recall_allowed:
            return ()
        return delays.handles(sends, names.TIMER_TOPIC, self._broker_name)
