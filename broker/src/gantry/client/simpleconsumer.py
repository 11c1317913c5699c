"""The simple consumer: receives messages one call at a time and settles each of them, without having queues.

    async with SimpleConsumer("billing", nameserver=..., subscription={"Orders": "paid"}) as consumer:
        while True:
            for message in await consumer.receive(max_messages=16, invisible_s=30.0):
                ...
                await consumer.ack(message)

It consumes by POP: a received message is invisible for the whole group until `invisible_s` is over, then it is
delivered again, to any member, with one attempt more; after the group's last attempt the broker makes it a dead letter.
Members share the messages and not the queues, so there is no rebalance, and a slow member stops no queue.

Each call begins with the next topic and broker, so all of them get their turn.  While there is nothing, one request
waits at each broker and takes nothing.  So a cancelled `receive` loses no message: what a broker had just given out is
given back and delivered again after a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.consuming.offsets import RemoteOffsets
from gantry.client.consuming.popturns import Place, PopTurns
from gantry.client.consuming.starting import store_begins
from gantry.client.consuming.subscribing import check_filters
from gantry.client.filters import Filter, Sql, subscriptions_of
from gantry.client.identity import ClientIdentity
from gantry.client.lifecycle import Lifecycle
from gantry.client.popped import PoppedMessage, Receipt, matching, receipt_of
from gantry.client.popping import TIMEOUT_S, Popping
from gantry.client.requests.pop_requests import POP_COUNT_MAX, PopResult, PopSettings, check_receive
from gantry.client.settings import ConsumerSettings, StartFrom
from gantry.clock import Clock, SystemClock
from gantry.errors import (
    ClosedError,
    ConfigError,
    OutcomeUnknownError,
    RefusedError,
    RemoteProtocolError,
    UnreachableError,
)
from gantry.model.names import is_retry_topic
from gantry.model.route import MessageQueue
from gantry.model.subscription import CONSUME_POP, Subscription
from gantry.transport.client import shared
from gantry.wire.heartbeat import ConsumerData, Heartbeat

__all__ = ["PoppedMessage", "SimpleConsumer", "Sql", "StartFrom"]

T = TypeVar("T")
log = logging.getLogger(__name__)

_FAULTS = (RefusedError, UnreachableError, OutcomeUnknownError, RemoteProtocolError)
_NEWS_S = 5.0  # how long a request waits for messages; RocketMQ's brokers tell of no redelivery, so they are looked for
_PAUSE_FIRST_S, _PAUSE_LAST_S = 0.05, 1.0  # after a round that found nothing and did not have to wait
_STOP_S = 3.0  # how long stop() waits for pops that are under way


class SimpleConsumer:
    """Receives and settles messages; an asynchronous context manager, or start() and stop() once each."""

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str],
        subscription: Mapping[str, Filter],
        start_from: StartFrom = StartFrom.LAST,
        timeout_s: float = TIMEOUT_S,
        clock: Clock | None = None,
    ) -> None:
        if start_from is StartFrom.TIMESTAMP:
            raise ConfigError("start_from is TIMESTAMP, expected FIRST or LAST; reset the group to a time instead")
        self.group = group
        self._clock = clock = clock or SystemClock()
        self._subscriptions = subscriptions_of(group, subscription, clock.now_ms(), with_retries=True)
        self._start_from = start_from
        self._timeout_s = timeout_s  # of one settling call with all its attempts
        self._session = Session(nameserver, self._heartbeat)
        self._routes = Routes(self._session)
        self._identity = ClientIdentity(self._session.nameservers[0], clock)
        self._popping = Popping(self._session, self._routes)
        self._is_orderly: bool | None = None  # None: not known yet
        self._turns = PopTurns()
        self._waiting: dict[MessageQueue, asyncio.Task[None]] = {}  # one for each place
        self._under_way: set[asyncio.Task[Any]] = set()  # pops, and messages that are being given back
        self._life = Lifecycle(
            group, self._session, self._routes, begin=self._begin_work, finish=self._finish_work, wake=self._wake
        )

    @property
    def client_id(self) -> str:
        """The id of this member for brokers."""
        return self._identity.client_id

    async def start(self) -> None:
        """Connect and check the filters; messages are requested by `receive` only.

        Returns when it is stored where a new group begins, at the latest after 5 s: what is sent from then on is
        received.
        """
        await self._life.start()

    async def _begin_work(self) -> None:
        await check_filters(self._session, self._routes, self.group, self.client_id, self._subscriptions)
        offsets = RemoteOffsets(self._session, self._routes, self.group)
        settings = ConsumerSettings(start_from=self._start_from)
        await store_begins(self._routes, offsets, self._subscriptions, settings, self._clock.now_ms())

    async def stop(self) -> None:
        """Unregister and close; received messages that were not settled are delivered again when their time is up."""
        await self._life.stop()

    async def _finish_work(self) -> None:
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=_STOP_S)
        if self._under_way:  # messages of those pops are being given back
            await asyncio.wait(self._under_way, timeout=_STOP_S)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Stop; raises the error that ended the consumer, if there was one."""
        await self._life.leave(error)

    async def receive(
        self, max_messages: int = POP_COUNT_MAX, invisible_s: float = 60.0, *, wait_s: float = 15.0
    ) -> list[PoppedMessage]:
        """Return messages as soon as there are some, empty when none came within `wait_s`.

        They are invisible to the group for `invisible_s` from now.  When no broker can be asked until the time is up,
        its error is raised: RefusedError, UnreachableError, OutcomeUnknownError.  ClosedError after `stop`.
        """
        check_receive(max_messages, invisible_s, wait_s)
        self._check_open()
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + wait_s, 0.0
        while True:
            begun_s = loop.time()
            try:
                places = await self._places()
                found = await self._round(places, max_messages, int(invisible_s * 1000))
                if found or begun_s >= deadline or self._life.is_over:
                    return found
                await self._news(places, deadline)
            except _FAULTS:
                if self._life.is_over:
                    return []
                if loop.time() >= deadline:
                    raise
            is_hasty = loop.time() - begun_s < _PAUSE_FIRST_S
            pause_s = min(_PAUSE_LAST_S, max(_PAUSE_FIRST_S, pause_s * 2)) if is_hasty else 0.0
            await asyncio.sleep(min(pause_s, max(0.0, deadline - loop.time())))

    async def ack(self, messages: PoppedMessage | Iterable[PoppedMessage]) -> None:
        """Finish messages, many in one request; an error means that some may be delivered again.

        RefusedError, UnreachableError, OutcomeUnknownError; the call may be repeated with the same messages.  A message
        whose time was up before is no error: it is delivered again.
        """
        self._check_open()
        by_topic: dict[str, list[Receipt]] = defaultdict(list)
        for message in [messages] if isinstance(messages, PoppedMessage) else messages:
            by_topic[message.source].append(receipt_of(message))
        acks = [self._popping.ack(self.group, topic, some, self._timeout_s) for topic, some in by_topic.items()]
        for failures in await asyncio.gather(*acks):
            for failure in failures:
                if failure is not None:
                    raise failure

    async def change_invisible(self, message: PoppedMessage, seconds: float) -> None:
        """Have a message delivered again so many seconds from now, unless it is settled before; 0: at once.

        The message gets a new receipt.  RefusedError, UnreachableError; OutcomeUnknownError: then it may be delivered
        again at the old or at the new time.
        """
        if seconds < 0:
            raise ValueError(f"seconds is {seconds}, expected a number that is not negative")
        self._check_open()
        receipt = receipt_of(message)
        message.receipt = await self._popping.change(self.group, message.source, receipt, seconds, self._timeout_s)

    async def give_up(self, message: PoppedMessage) -> None:
        """Make a message a dead letter of the group at once; errors are those of `ack`."""
        self._check_open()
        await self._popping.give_up(self.group, message, self._timeout_s)

    # Brokers

    async def _places(self) -> list[Place]:
        """Return what to pop: each topic on each broker that has it, in order; the first error when there is none."""
        if self._is_orderly is None:
            self._is_orderly = await self._popping.is_orderly(self.group, self._subscriptions[0].topic)
        found: list[Place] = []
        failure: Exception | None = None
        now = asyncio.get_running_loop().time()
        for subscription in self._subscriptions:
            topic = subscription.topic
            if self._turns.is_absent(topic, now):
                continue
            try:
                found += [(target, subscription) for target in await self._popping.targets(topic)]
            except _FAULTS as error:
                if is_retry_topic(topic):
                    self._turns.absent(topic, now)  # of a group without redeliveries
                else:
                    failure = failure or error
        if not found and failure is not None:
            raise failure
        return found

    async def _round(self, places: list[Place], count_max: int, invisible_ms: int) -> list[PoppedMessage]:
        """Ask one place after the other until one has messages; the last error when all of them fail."""
        loop = asyncio.get_running_loop()
        asked = self._turns.order(places, loop.time())
        failures: list[Exception] = []
        for place in asked:
            asked_s = loop.time()
            try:
                found = await self._pop(place, count_max, invisible_ms)
            except _FAULTS as error:
                failures.append(error)
                self._turns.failed(place[0], asked_s, loop.time())
                continue
            if found:
                return found
        if failures and len(failures) == len(asked):
            raise failures[-1]
        return []

    async def _pop(self, place: Place, count_max: int, invisible_ms: int) -> list[PoppedMessage]:
        target, subscription = place
        settings = self._settings(subscription, count_max, invisible_ms, 0.0)
        task = self._own(self._popping.pop(target, settings))
        try:
            result = await shared(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda task: self._unclaimed(subscription.topic, task))
            raise
        if self._life.is_over:
            self._unclaimed(subscription.topic, task)
            return []
        wanted, unwanted = matching(result.messages, subscription)
        if unwanted:
            self._own(self._popping.ack(self.group, subscription.topic, map(receipt_of, unwanted), self._timeout_s))
        if result.unread:
            self._give_back(subscription.topic, result.unread)
        return wanted

    def _unclaimed(self, topic: str, task: asyncio.Task[PopResult]) -> None:
        """Give back what a pop brought that nobody waits for any more."""
        if not task.cancelled() and task.exception() is None:
            result = task.result()
            receipts = [message.receipt for message in result.messages if message.receipt is not None]
            self._give_back(topic, [*receipts, *result.unread])

    def _give_back(self, topic: str, receipts: Sequence[Receipt]) -> None:
        if receipts:
            self._own(self._popping.give_back(self.group, topic, receipts, self._timeout_s))

    async def _news(self, places: list[Place], deadline: float) -> None:
        """Return when a place may have messages, or the time is up; requests that still wait serve the next call."""
        waiting = []
        for target, subscription in places:
            task = self._waiting.get(target)
            if task is None or task.done():
                task = self._waiting[target] = self._life.tasks.own(
                    asyncio.create_task(self._wait_at(target, subscription), name=f"gantry-news-{target.topic}")
                )
            waiting.append(task)
        if waiting:
            left_s = max(0.0, deadline - asyncio.get_running_loop().time())
            await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    async def _wait_at(self, target: MessageQueue, subscription: Subscription) -> None:
        try:
            await self._popping.wait_for_messages(target, self._settings(subscription, POP_COUNT_MAX, 0, _NEWS_S))
        except _FAULTS as error:
            log.debug("%s: %s cannot be asked for news: %s", self.group, target, error)
            await asyncio.sleep(_PAUSE_LAST_S)

    def _settings(self, subscription: Subscription, count_max: int, invisible_ms: int, wait_s: float) -> PopSettings:
        from_first, orderly = self._start_from is StartFrom.FIRST, bool(self._is_orderly)
        return PopSettings(self.group, subscription, count_max, invisible_ms, wait_s, from_first, orderly)

    def _own(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that stop() waits for."""
        task = self._life.tasks.own(asyncio.create_task(work))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def _wake(self) -> None:
        for task in self._waiting.values():
            task.cancel()

    def _check_open(self) -> None:
        if self._life.is_over:
            self._life.check()
            raise ClosedError(f"{self.group}: this consumer was stopped; make a new one")

    def _heartbeat(self) -> Heartbeat:
        data = ConsumerData(
            self.group, self._subscriptions, consume_type=CONSUME_POP, consume_from_where=self._start_from.value
        )
        return Heartbeat(self.client_id, consumers=(data,))
