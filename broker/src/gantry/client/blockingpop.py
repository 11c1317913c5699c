"""The blocking simple consumer: `SimpleConsumer` on plain sockets, without asyncio.

    with BlockingSimpleConsumer("billing", nameserver=..., subscription={"Orders": "paid"}) as consumer:
        for message in consumer.receive(invisible_s=30.0):
            ...
            consumer.ack(message)

Results and errors are those of `simpleconsumer.SimpleConsumer`.  Receiving and settling have a connection each to every
broker, so that a thread can settle while another one waits for messages.  A call that is interrupted while a broker
answers loses the answer: its messages are delivered again when their time is up.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Self, TypeVar

from gantry.client.connections.blockingsession import BlockingSession, master_of
from gantry.client.consuming.popturns import Place, PopTurns
from gantry.client.filters import Filter, Sql, subscriptions_of
from gantry.client.identity import ClientIdentity
from gantry.client.popped import PoppedMessage, Receipt, matching, receipt_of
from gantry.client.received import LEVEL_DEAD
from gantry.client.requests import pop_requests, questions
from gantry.client.requests.pop_requests import ANY_QUEUE, GIVEN_BACK_MS, POP_COUNT_MAX, PopSettings, check_receive
from gantry.client.requests.question import Question
from gantry.client.settings import StartFrom, nameserver_list
from gantry.clock import Clock, SystemClock
from gantry.errors import (
    ClosedError,
    ConfigError,
    GantryError,
    OutcomeUnknownError,
    RefusedError,
    RemoteProtocolError,
    UnreachableError,
)
from gantry.model.names import is_retry_topic
from gantry.model.route import MessageQueue
from gantry.model.subscription import CONSUME_POP, Subscription
from gantry.transport import forked
from gantry.wire.codes import ResponseCode
from gantry.wire.heartbeat import ConsumerData, Heartbeat

__all__ = ["BlockingSimpleConsumer", "PoppedMessage", "Sql", "StartFrom"]

T = TypeVar("T")

_FAULTS = (RefusedError, UnreachableError, OutcomeUnknownError, RemoteProtocolError)
_ATTEMPT_S = 3.0
_MARGIN_S = 10.0
_NEWS_S = 5.0  # how long it waits at the only place; at one of several only a second, because the others go on
_NEWS_OF_SEVERAL_S = 1.0
_PAUSE_FIRST_S, _PAUSE_LAST_S = 0.05, 1.0


class BlockingSimpleConsumer:
    """Receives and settles messages; may be used by several threads."""

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str],
        subscription: Mapping[str, Filter],
        start_from: StartFrom = StartFrom.LAST,
        timeout_s: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        if start_from is StartFrom.TIMESTAMP:
            raise ConfigError("start_from is TIMESTAMP, expected FIRST or LAST; reset the group to a time instead")
        self.group = group
        clock = clock or SystemClock()
        self._subscriptions = subscriptions_of(group, subscription, clock.now_ms(), with_retries=True)
        self._start_from = start_from
        self._timeout_s = timeout_s  # of one settling call with all its attempts
        self._identity = ClientIdentity(nameserver_list(nameserver)[0], clock)
        self._receiving = BlockingSession(nameserver, self._heartbeat)
        self._settling = BlockingSession(nameserver, None)
        self._is_orderly: bool | None = None  # None: not known yet
        self._turns = PopTurns()
        forked.enrol(self)

    def forked(self) -> None:
        """Take another client id in a forked child."""
        self._identity.renew()

    def close(self) -> None:
        """Unregister at the brokers and close the connections; what was not settled is delivered again later."""
        try:
            self._receiving.close()
        finally:
            self._settling.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def receive(
        self, max_messages: int = POP_COUNT_MAX, invisible_s: float = 60.0, *, wait_s: float = 15.0
    ) -> list[PoppedMessage]:
        """Return messages as soon as there are some, empty when none came within `wait_s`."""
        check_receive(max_messages, invisible_s, wait_s)
        deadline, pause_s = time.monotonic() + wait_s, 0.0
        while True:
            begun_s = time.monotonic()
            try:
                places = self._places()
                found = self._round(places, max_messages, int(invisible_s * 1000))
                if found or begun_s >= deadline:
                    return found
                self._news(places, deadline)
            except ClosedError:
                raise
            except _FAULTS:
                if time.monotonic() >= deadline:
                    raise
            is_hasty = time.monotonic() - begun_s < _PAUSE_FIRST_S
            pause_s = min(_PAUSE_LAST_S, max(_PAUSE_FIRST_S, pause_s * 2)) if is_hasty else 0.0
            time.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))

    def ack(self, messages: PoppedMessage | Iterable[PoppedMessage]) -> None:
        """Finish messages, many in one request."""
        by_topic: dict[str, list[Receipt]] = defaultdict(list)
        for message in [messages] if isinstance(messages, PoppedMessage) else messages:
            by_topic[message.source].append(receipt_of(message))
        failure: GantryError | None = None
        for topic, receipts in by_topic.items():
            try:
                self._ack(topic, receipts)
            except GantryError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def change_invisible(self, message: PoppedMessage, seconds: float) -> None:
        """Have a message delivered again so many seconds from now, unless it is settled before; 0: at once."""
        if seconds < 0:
            raise ValueError(f"seconds is {seconds}, expected a number that is not negative")
        receipt = receipt_of(message)
        question = pop_requests.change(self.group, message.source, receipt, int(seconds * 1000))
        message.receipt = self._until_done(message.source, receipt, question, only_if_unsent=True)

    def give_up(self, message: PoppedMessage) -> None:
        """Make a message a dead letter of the group at once."""
        receipt, topic = receipt_of(message), message.source
        try:
            self._until_done(topic, receipt, pop_requests.forward_to_dlq(self.group, topic, receipt))
            return
        except RefusedError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        # In this order: a crash in between leaves a second dead letter at worst.
        self._until_done(topic, receipt, questions.send_back(self.group, message.stored, LEVEL_DEAD, 0))
        self._ack(topic, [receipt])

    def _places(self) -> list[Place]:
        found: list[Place] = []
        failure: GantryError | None = None
        now = time.monotonic()
        for subscription in self._subscriptions:
            topic = subscription.topic
            if self._turns.is_absent(topic, now):
                continue
            try:
                names = sorted({queue.broker_name for queue in self._receiving.route(topic).queues_to_read(topic)})
                found += [(MessageQueue(topic, name, ANY_QUEUE), subscription) for name in names]
            except _FAULTS as error:
                if is_retry_topic(topic):
                    self._turns.absent(topic, now)  # of a group without redeliveries
                else:
                    failure = failure or error
        if not found and failure is not None:
            raise failure
        return found

    def _round(self, places: list[Place], count_max: int, invisible_ms: int) -> list[PoppedMessage]:
        """Ask one place after the other until one has messages; the last error when all of them fail."""
        failures: list[GantryError] = []
        asked = self._turns.order(places, time.monotonic())
        for target, subscription in asked:
            asked_s = time.monotonic()
            try:
                found = self._pop(target, subscription, count_max, invisible_ms)
            except ClosedError:
                raise
            except _FAULTS as error:
                failures.append(error)
                self._turns.failed(target, asked_s, time.monotonic())
                continue
            if found:
                return found
        if failures and len(failures) == len(asked):
            raise failures[-1]
        return []

    def _pop(
        self, target: MessageQueue, subscription: Subscription, count_max: int, invisible_ms: int
    ) -> list[PoppedMessage]:
        if self._is_orderly is None:
            self._is_orderly = self._once(self._receiving, target, pop_requests.is_orderly(self.group), _ATTEMPT_S)
        settings = self._settings(subscription, count_max, invisible_ms, 0.0)
        result = self._once(self._receiving, target, pop_requests.pop(target, settings), _MARGIN_S)
        wanted, unwanted = matching(result.messages, subscription)
        if unwanted:
            try:
                self._ack(subscription.topic, list(map(receipt_of, unwanted)))
            except GantryError:
                pass  # they come again, and are not wanted then either
        for receipt in result.unread:
            self._give_back(subscription.topic, receipt)
        return wanted

    def _give_back(self, topic: str, receipt: Receipt) -> None:
        try:
            question = pop_requests.change(self.group, topic, receipt, GIVEN_BACK_MS)
            self._until_done(topic, receipt, question, only_if_unsent=True)
        except GantryError:
            pass  # it is delivered again when its time is up

    def _news(self, places: list[Place], deadline: float) -> None:
        """Return when a place may have messages, or after a short time."""
        target, subscription = self._turns.order(places, time.monotonic())[0]
        longest_s = _NEWS_S if len(places) == 1 else _NEWS_OF_SEVERAL_S
        settings = self._settings(subscription, POP_COUNT_MAX, 0, min(longest_s, max(0.0, deadline - time.monotonic())))
        question = pop_requests.notification(target, settings)
        self._once(self._receiving, target, question, settings.wait_s + _MARGIN_S)

    def _settings(self, subscription: Subscription, count_max: int, invisible_ms: int, wait_s: float) -> PopSettings:
        from_first, orderly = self._start_from is StartFrom.FIRST, bool(self._is_orderly)
        return PopSettings(self.group, subscription, count_max, invisible_ms, wait_s, from_first, orderly)

    def _ack(self, topic: str, receipts: Sequence[Receipt]) -> None:
        for indexes, question in pop_requests.ack_requests(self.group, topic, receipts):
            self._until_done(topic, receipts[indexes[0]], question)

    def _once(self, session: BlockingSession, queue: MessageQueue, question: Question[T], timeout_s: float) -> T:
        try:
            return session.ask(master_of(session.route(queue.topic), queue), question, timeout_s)
        except GantryError:
            session.doubt(queue.topic)
            raise

    def _until_done(self, topic: str, receipt: Receipt, question: Question[T], only_if_unsent: bool = False) -> T:
        """Ask the present master until it answers; the last error when the time is up, or when it is final."""
        queue = MessageQueue(topic, receipt.broker, receipt.queue_id)
        deadline, pause_s = time.monotonic() + self._timeout_s, _PAUSE_FIRST_S
        while True:
            try:
                left_s = max(0.01, deadline - time.monotonic())
                return self._once(self._settling, queue, question, min(_ATTEMPT_S, left_s))
            except ClosedError:
                raise
            except (RefusedError, UnreachableError, OutcomeUnknownError) as error:
                is_final = isinstance(error, OutcomeUnknownError) and only_if_unsent
                if isinstance(error, RefusedError):
                    is_final = not error.retriable
                wait_s = pause_s * self._identity.random.uniform(0.5, 1.0)
                if is_final or time.monotonic() + wait_s >= deadline:
                    raise
            time.sleep(wait_s)
            pause_s = min(_PAUSE_LAST_S, pause_s * 2)

    def _heartbeat(self) -> Heartbeat:
        data = ConsumerData(
            self.group, self._subscriptions, consume_type=CONSUME_POP, consume_from_where=self._start_from.value
        )
        return Heartbeat(self._identity.client_id, consumers=(data,))
