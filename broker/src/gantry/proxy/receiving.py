"""ReceiveMessage: one pop of a broker for one call of a consumer.

The answer is a stream: one status, the messages, one delivery time.  Nothing is written before the pop has ended, so an
empty answer is the status MESSAGE_NOT_FOUND.  The broker holds the pop while it has nothing, until shortly before the
deadline of the call.  A call that names no broker gets one of the topic's, as with RocketMQ's proxy.

    the client goes, or its deadline      the pop goes on without it; what it brings is given back, visible in a second
    it says goodbye, or the proxy ends    the call is answered at once as empty; then the same
    it goes while messages are written    those that were never written are given back, the others keep their leases

An auto-renewed message belongs to the client (`gantryOwner`): the broker renews its lease while the client lives.
A broker compares tags by their hashes only; a message whose tag is another one after all is acknowledged here.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from gantry.client.popped import PoppedMessage
from gantry.client.requests.pop_requests import ANY_QUEUE, PopResult, PopSettings, PopStatus
from gantry.errors import GantryError
from gantry.gateway.brokers import Brokers
from gantry.model.route import MessageQueue, TopicRoute
from gantry.model.subscription import ALL_TAGS, SQL_EXPRESSION, TAG_EXPRESSION, Subscription, expression_fault
from gantry.proxy import calls, convert, faults, routes, validation
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.caller import Caller
from gantry.proxy.clients import KnownClient, KnownClients
from gantry.proxy.faults import FaultError
from gantry.proxy.handles import DeliveredLease, Handles
from gantry.transport.fairness import SharedPlaces

if TYPE_CHECKING:
    from gantry.proxy.calls import Context

log = logging.getLogger(__name__)

HELD_MAX = 20_000  # calls that wait for messages in this process
COUNT_MAX = 32
RENEWED_INVISIBLE_MS = 60_000  # of a message whose lease the broker renews; RocketMQ: defaultInvisibleTimeMills
POLL_MIN_S, POLL_MAX_S = 5.0, 20.0
_REQUEST_TIMEOUT_S = 3.0  # RocketMQ's clients: their deadline is the polling time and this
_MARGIN_S = 0.5  # before the deadline of the call
_TYPES = {pb.FILTER_TYPE_UNSPECIFIED: TAG_EXPRESSION, pb.TAG: TAG_EXPRESSION, pb.SQL: SQL_EXPRESSION}


class ReceiveCalls:
    """Receives for all consumers; `held` is the number of calls that wait now."""

    def __init__(self, brokers: Brokers, clients: KnownClients, handles: Handles, now_ms: Callable[[], int]) -> None:
        self._brokers = brokers
        self._clients = clients
        self._handles = handles
        self._now_ms = now_ms
        self._pops: set[asyncio.Task[PopResult]] = set()  # those without their call too
        self._places = SharedPlaces(HELD_MAX)  # of these
        self._giving: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()
        self._turn = 0  # of calls that name no broker
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}  # by client id, of the calls that wait

    @property
    def held(self) -> int:
        """The number of pops under way."""
        return len(self._pops)

    async def serve(self, request: pb.ReceiveMessageRequest, context: Context, caller: Caller) -> int:
        """Serve one call. Return the code of its status; FaultError before anything was written."""
        topic, group = routes.topic_name(request.message_queue.topic), routes.group_name(request.group)
        client = self._clients.seen(caller, asyncio.get_running_loop().time())
        client.joined(group)
        if self._ending.is_set():
            raise FaultError(pb.TOO_MANY_REQUESTS, "the proxy ends; connect to another one")
        is_orderly = await self._brokers.is_orderly(group)
        settings = _pop_settings(request, group, topic, _wait_s(request, context, client, caller), is_orderly, caller)
        route = await self._brokers.route(topic)
        broker = request.message_queue.broker.name or self._any_broker(route, topic, request.attempt_id)
        queue = MessageQueue(topic, broker, ANY_QUEUE)
        result = await self._popped(queue, settings, request.attempt_id, client)
        if result.status is PopStatus.TOO_MANY:
            raise FaultError(pb.TOO_MANY_REQUESTS, "the broker holds too many calls that wait for messages")
        wanted = [one for one in result.messages if _is_wanted(one, settings.subscription)]
        others = [one for one in result.messages if not _is_wanted(one, settings.subscription)]
        if others:
            self._later(self._acknowledge(group, topic, others))
        if not wanted:
            raise FaultError(pb.MESSAGE_NOT_FOUND, "no match message" if others else "no new message")
        await self._write(request, context, group, wanted)
        return pb.OK

    async def refuse(self, context: Context, status: pb.Status) -> None:
        """Answer without a message."""
        await context.write(pb.ReceiveMessageResponse(status=status))
        await context.write(self._delivered_at())

    def ended(self, client_id: str) -> None:
        """Answer the waiting calls of a client that said goodbye."""
        _leave(self._waiting.get(client_id, ()))

    async def drain(self, within_s: float) -> None:
        """Answer all waiting calls, and wait a moment for pops and what is given back of them."""
        self._ending.set()
        for waiting in self._waiting.values():
            _leave(waiting)
        await asyncio.sleep(0)
        if self._pops:
            await asyncio.wait(list(self._pops), timeout=within_s)
        if self._giving:
            await asyncio.wait(list(self._giving), timeout=within_s)
        for task in [*self._pops, *self._giving]:
            task.cancel()

    def _any_broker(self, route: TopicRoute, topic: str, attempt_id: str) -> str:
        """Return a broker group of the topic, one with a master if there is one.

        The same for a repeated attempt, else one after the other.
        FaultError FORBIDDEN when no queue of the topic can be read.
        """
        readable = sorted({queue.broker_name for queue in route.queues_to_read(topic)})
        if not readable:
            raise FaultError(pb.FORBIDDEN, f"topic {topic} has no readable queue")
        known = [route.broker(name) for name in readable]
        names = [one.broker_name for one in known if one is not None and one.master is not None] or readable
        self._turn += 1
        return names[(zlib.crc32(attempt_id.encode()) if attempt_id else self._turn) % len(names)]

    async def _popped(
        self, queue: MessageQueue, settings: PopSettings, attempt_id: str, client: KnownClient
    ) -> PopResult:
        """Pop for a call; empty when the client says goodbye meanwhile, or the proxy ends."""
        caller = client.caller
        if not self._places.take(caller):
            text = f"{self.held} calls wait for messages in this proxy, and this client or host has its share of them"
            raise FaultError(pb.TOO_MANY_REQUESTS, text)
        pop = asyncio.create_task(self._brokers.popping.pop(queue, settings, attempt_id))
        self._pops.add(pop)
        pop.add_done_callback(self._pops.discard)
        pop.add_done_callback(lambda _: self._places.give_back(caller))
        leaving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client.caller.client_id, set()).add(leaving)
        try:
            either: set[asyncio.Future[Any]] = {pop, leaving}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._orphan(pop, settings.group, queue.topic)
            raise
        finally:
            waiting = self._waiting[client.caller.client_id]
            waiting.discard(leaving)
            if not waiting:
                del self._waiting[client.caller.client_id]
        if pop.done():
            return pop.result()
        self._orphan(pop, settings.group, queue.topic)
        return PopResult(PopStatus.EMPTY)

    def _orphan(self, pop: asyncio.Task[PopResult], group: str, topic: str) -> None:
        def gone(pop: asyncio.Task[PopResult]) -> None:
            if pop.cancelled() or pop.exception() is not None:
                return
            self._give_back(group, topic, pop.result().messages)

        pop.add_done_callback(gone)

    async def _write(
        self, request: pb.ReceiveMessageRequest, context: Context, group: str, wanted: list[PoppedMessage]
    ) -> None:
        topic = request.message_queue.topic
        written = 0
        try:
            await context.write(pb.ReceiveMessageResponse(status=faults.ok()))
            for popped in wanted:
                await context.write(pb.ReceiveMessageResponse(message=self._message(popped, group, request)))
                written += 1
            await context.write(self._delivered_at())
        finally:
            if written < len(wanted):
                log.info("%s: %d of %d messages were not written", group, len(wanted) - written, len(wanted))
                self._give_back(group, topic.name, wanted[written:])

    def _message(self, popped: PoppedMessage, group: str, request: pb.ReceiveMessageRequest) -> pb.Message:
        topic = request.message_queue.topic
        handle = None
        if popped.receipt is not None:
            lease = DeliveredLease(popped.receipt, popped.attempt, request.auto_renew)
            handle = self._handles.receipt(group, topic.name, lease)
        found = convert.delivered(popped.stored, topic, handle)
        if popped.receipt is not None:
            found.system_properties.invisible_duration.FromMilliseconds(popped.receipt.invisible_ms)
        return found

    def _delivered_at(self) -> pb.ReceiveMessageResponse:
        found = pb.ReceiveMessageResponse()
        found.delivery_timestamp.FromMilliseconds(self._now_ms())
        return found

    def _give_back(self, group: str, topic: str, messages: Iterable[PoppedMessage]) -> None:
        receipts = [one.receipt for one in messages if one.receipt is not None]
        if receipts:
            self._later(self._brokers.popping.give_back(group, topic, receipts))

    async def _acknowledge(self, group: str, topic: str, messages: Iterable[PoppedMessage]) -> None:
        receipts = [one.receipt for one in messages if one.receipt is not None]
        await self._brokers.popping.ack(group, topic, receipts)

    def _later(self, work: Awaitable[None]) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(_logged(work))
        self._giving.add(task)
        task.add_done_callback(self._giving.discard)


async def _logged(work: Awaitable[None]) -> None:
    try:
        await work
    except GantryError as error:
        log.info("messages become visible only when their leases end: %s", error)


def _leave(waiting: Iterable[asyncio.Future[None]]) -> None:
    """Let these calls answer at once."""
    for leaving in waiting:
        if not leaving.done():
            leaving.set_result(None)


def subscription(expression: pb.FilterExpression, topic: str) -> Subscription:
    """Return what a consumer wants of a topic; FaultError ILLEGAL_FILTER_EXPRESSION when it cannot be."""
    kind = _TYPES.get(expression.type)
    if kind is None:
        raise FaultError(pb.ILLEGAL_FILTER_EXPRESSION, f"filter type {expression.type} is not known; use TAG or SQL")
    fault = expression_fault(kind, expression.expression)
    if fault is not None:
        raise FaultError(pb.ILLEGAL_FILTER_EXPRESSION, fault)
    return Subscription(topic, expression.expression.strip() or ALL_TAGS, expression_type=kind)


def _pop_settings(
    request: pb.ReceiveMessageRequest, group: str, topic: str, wait_s: float, is_orderly: bool, caller: Caller
) -> PopSettings:
    invisible_ms = RENEWED_INVISIBLE_MS
    if not request.auto_renew:
        invisible_ms = request.invisible_duration.ToMilliseconds()
        validation.check_invisible(invisible_ms)
    if request.batch_size < 1:
        raise FaultError(pb.BAD_REQUEST, f"batch_size is {request.batch_size}, expected 1 or more")
    return PopSettings(
        group,
        subscription(request.filter_expression, topic),
        count_max=min(COUNT_MAX, request.batch_size),
        invisible_ms=invisible_ms,
        wait_s=wait_s,
        is_orderly=is_orderly,
        owner=caller.client_id if request.auto_renew else "",
    )


def _wait_s(request: pb.ReceiveMessageRequest, context: Context, client: KnownClient, caller: Caller) -> float:
    """Return how long a call may wait; FaultError when its deadline leaves less than RocketMQ's minimum."""
    left_s = calls.left_s(context)
    if request.HasField("long_polling_timeout"):
        wanted_s = request.long_polling_timeout.ToMilliseconds() / 1000
    else:
        timeout_s = _REQUEST_TIMEOUT_S
        if client.settings is not None and client.settings.HasField("request_timeout"):
            timeout_s = client.settings.request_timeout.ToMilliseconds() / 1000
        wanted_s = POLL_MAX_S if left_s is None else left_s - timeout_s / 2
    wanted_s = min(POLL_MAX_S, max(POLL_MIN_S, wanted_s))
    if left_s is None:
        return wanted_s
    if wanted_s > left_s and left_s < POLL_MIN_S:
        code = pb.ILLEGAL_POLLING_TIME if caller.knows_polling_code else pb.BAD_REQUEST
        raise FaultError(code, f"the deadline is in {left_s:.1f} s, to wait takes at least {POLL_MIN_S:g} s")
    return max(0.0, min(wanted_s, left_s - _MARGIN_S))


def _is_wanted(popped: PoppedMessage, wanted: Subscription) -> bool:
    if wanted.expression_type != TAG_EXPRESSION or not wanted.tags:
        return True
    return popped.tags in wanted.tags
