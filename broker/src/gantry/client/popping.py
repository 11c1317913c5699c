"""Pops from brokers and settles popped messages, for a client that has a session.  Its state: routes, lost answers.

A receipt names its broker group, and every request about it goes to the group's present master.  The master is looked
up for each attempt, so after a failover the next attempt goes to the new one, which knows the leases of the old one.

    pop, wait_for_messages     one attempt; an error is the caller's, who chooses the next broker
    ack, give_back, bury       repeated until the time is up, because a repetition changes nothing
    change                     repeated only if nothing was sent; OutcomeUnknownError when the answer is lost

Every wait is bounded by `timeout_s` of the call.  What is never settled becomes visible again when its lease ends.
A pop whose answer is lost has leased messages even so: they come again after the invisible time.  Those of an owner
would be renewed while it lives, so their broker is told to let go of that pop, until it answers or five minutes are
over.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Iterable, Sequence
from typing import TypeVar

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.popped import PoppedMessage, Receipt, receipt_of
from gantry.client.received import LEVEL_DEAD
from gantry.client.requests import pop_requests, questions
from gantry.client.requests.pop_requests import ANY_QUEUE, GIVEN_BACK_MS, PopResult, PopSettings
from gantry.client.requests.question import Question
from gantry.errors import (
    ClosedError,
    GantryError,
    OutcomeUnknownError,
    RefusedError,
    RemoteProtocolError,
    UnreachableError,
)
from gantry.model.route import MessageQueue
from gantry.wire.codes import ResponseCode

T = TypeVar("T")
log = logging.getLogger(__name__)

TIMEOUT_S = 10.0  # of settling with all its attempts: longer than a failover of a few seconds
_ATTEMPT_S = 3.0
_LET_GO_S = 300.0  # longer than most outages
_GATHER_S, _LOST_AT_ONCE, _LOST_MAX = 0.1, 500, 50_000  # names of pops whose answers did not come, of one broker
_MARGIN_S = 10.0  # for the answer beyond the time that a broker may hold a pop
_PAUSE_FIRST_S, _PAUSE_LAST_S = 0.1, 1.0


class Popping:
    """Pops and settles for any number of groups; belongs to the loop of its session."""

    def __init__(self, session: Session, routes: Routes) -> None:
        self._session = session
        self._routes = routes
        self._lost: dict[str, list[str]] = {}  # by broker: names of pops whose answers did not come
        self._random = random.Random()  # jitter, so that clients that lost a broker together do not retry together

    async def targets(self, topic: str) -> list[MessageQueue]:
        """Return what to pop for all messages of a topic: all queues of each of its brokers, in order.

        RefusedError 17 when no broker has the topic, UnreachableError when no name server answers.
        """
        names = sorted({queue.broker_name for queue in await self._routes.to_read(topic)})
        return [MessageQueue(topic, name, ANY_QUEUE) for name in names]

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic in order, for pops of single queues; errors are those of `targets`."""
        return list(await self._routes.to_read(topic))

    async def pop(self, queue: MessageQueue, settings: PopSettings, attempt_id: str = "") -> PopResult:
        """Pop once from the master of a queue's group, waiting as long as the settings say.

        RefusedError, UnreachableError, OutcomeUnknownError or RemoteProtocolError; then the route is asked for again.
        """
        name = uuid.uuid4().hex if settings.owner and not settings.is_orderly else ""
        question = pop_requests.pop(queue, settings, attempt_id, name)
        try:
            return await self._once(queue, question, settings.wait_s + _MARGIN_S)
        except (OutcomeUnknownError, RemoteProtocolError):
            if name:
                self._let_go(queue, name)
            raise

    def _let_go(self, queue: MessageQueue, name: str) -> None:
        """Have a broker let go of what a pop may have taken for an owner: else it renews these leases while that lives.

        When a broker dies, all pops that it held are told to its successor, many in one request.
        """
        lost = self._lost.setdefault(queue.broker_name, [])
        if len(lost) < _LOST_MAX:
            lost.append(name)
        if len(lost) == 1:
            self._session.tasks.own(asyncio.create_task(self._tell_lost(queue, lost), name="gantry-lost-pops"))

    async def _tell_lost(self, queue: MessageQueue, lost: list[str]) -> None:
        await asyncio.sleep(_GATHER_S)
        while names := lost[:_LOST_AT_ONCE]:
            try:
                await self._until_done(queue, pop_requests.end_pops(names), _LET_GO_S)
            except GantryError as error:
                log.info("%s: what %d pops may have taken comes when its leases end: %s", queue, len(names), error)
            del lost[: len(names)]

    async def wait_for_messages(self, queue: MessageQueue, settings: PopSettings) -> bool:
        """Wait until a pop would find messages; False when there are none until the settings' time is up.

        It takes nothing, so a caller may be cancelled at any time without loss.  Errors are those of `pop`.
        """
        return await self._once(queue, pop_requests.notification(queue, settings), settings.wait_s + _MARGIN_S)

    async def ack(
        self, group: str, topic: str, receipts: Iterable[Receipt], timeout_s: float = TIMEOUT_S
    ) -> list[GantryError | None]:
        """Acknowledge messages of a topic, those of one broker in one request; all brokers at the same time.

        Return for each receipt None, or the error of its broker: RefusedError when it says no, UnreachableError or
        OutcomeUnknownError when the time is up.  A receipt that has expired is no error.
        """
        receipts = list(receipts)
        done: list[GantryError | None] = [None] * len(receipts)

        async def acknowledge(indexes: Sequence[int], question: Question[None]) -> None:
            try:
                await self._until_done(_place(topic, receipts[indexes[0]]), question, timeout_s)
            except GantryError as error:
                for index in indexes:
                    done[index] = error

        await asyncio.gather(
            *(acknowledge(*request) for request in pop_requests.ack_requests(group, topic, receipts))
        )
        return done

    async def change(
        self, group: str, topic: str, receipt: Receipt, invisible_s: float, timeout_s: float = TIMEOUT_S
    ) -> Receipt:
        """Make a message visible so many seconds from now. Return its new receipt; the old one is worth nothing.

        RefusedError, UnreachableError, or OutcomeUnknownError: then it may be visible at the old or at the new time.
        """
        return await self._changed(group, topic, receipt, invisible_s, timeout_s, only_if_unsent=True)

    async def _changed(
        self, group: str, topic: str, receipt: Receipt, invisible_s: float, timeout_s: float, only_if_unsent: bool
    ) -> Receipt:
        question = pop_requests.change(group, topic, receipt, max(0, int(invisible_s * 1000)))
        return await self._until_done(_place(topic, receipt), question, timeout_s, only_if_unsent)

    async def give_back(
        self, group: str, topic: str, receipts: Iterable[Receipt], timeout_s: float = TIMEOUT_S
    ) -> None:
        """Make messages visible in a second, for any member; one that cannot be is visible when its lease ends.

        Repeated also when an answer was lost, because a lease that is renewed for a client that lives ends late.
        """
        seconds = GIVEN_BACK_MS / 1000
        changes = [
            self._changed(group, topic, receipt, seconds, timeout_s, only_if_unsent=False) for receipt in receipts
        ]
        for error in await asyncio.gather(*changes, return_exceptions=True):
            if isinstance(error, BaseException) and not isinstance(error, GantryError):
                raise error

    async def bury(self, group: str, topic: str, receipt: Receipt, timeout_s: float = TIMEOUT_S) -> None:
        """Make a message a dead letter of the group and acknowledge it; RefusedError 3 from RocketMQ's brokers."""
        question = pop_requests.forward_to_dlq(group, topic, receipt)
        await self._until_done(_place(topic, receipt), question, timeout_s)

    async def give_up(self, group: str, message: PoppedMessage, timeout_s: float = TIMEOUT_S) -> None:
        """Make a message a dead letter as `bury` does; RocketMQ's brokers get a send-back and an acknowledgement."""
        receipt = receipt_of(message)
        try:
            await self.bury(group, message.source, receipt, timeout_s)
            return
        except RefusedError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        # In this order: a crash in between leaves a second dead letter at worst.
        question = questions.send_back(group, message.stored, LEVEL_DEAD, 0)
        await self._until_done(_place(message.source, receipt), question, timeout_s)
        for failure in await self.ack(group, message.source, [receipt], timeout_s):
            if failure is not None:
                raise failure

    async def is_orderly(self, group: str, topic: str) -> bool:
        """Return whether a group consumes in order, as the first broker that answers has it; errors as of `pop`."""
        failure: GantryError | None = None
        for target in await self.targets(topic):
            try:
                return await self._once(target, pop_requests.is_orderly(group), _ATTEMPT_S)
            except GantryError as error:
                failure = error
        raise failure or UnreachableError(f"topic {topic}: no broker has a queue that may be read")

    async def keep_owner(self, client_id: str, groups: Iterable[str], queue: MessageQueue) -> None:
        """Tell a queue's broker that a client lives, once: see `pop_requests.keep_owners`.  Errors are those of `pop`,
        RefusedError 3 from RocketMQ's brokers.
        """
        await self._once(queue, pop_requests.keep_owners(client_id, groups), _ATTEMPT_S)

    async def end_owner(self, client_id: str, group: str, queue: MessageQueue) -> None:
        """Tell a queue's broker that a client ends, once: its leases become visible.  Errors as of `keep_owner`."""
        await self._once(queue, pop_requests.end_owner(client_id, group), _ATTEMPT_S)

    async def _once(self, queue: MessageQueue, question: Question[T], timeout_s: float) -> T:
        try:
            await self._routes.to_read(queue.topic)
            return await self._session.ask(self._routes.master(queue), question, timeout_s)
        except GantryError:
            self._routes.doubt(queue.topic)
            raise

    async def _until_done(
        self, queue: MessageQueue, question: Question[T], timeout_s: float, only_if_unsent: bool = False
    ) -> T:
        """Ask the present master until it answers; the last error when the time is up, or when it is final."""
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + timeout_s, _PAUSE_FIRST_S
        while True:
            try:
                return await self._once(queue, question, min(_ATTEMPT_S, max(0.01, deadline - loop.time())))
            except ClosedError:
                raise
            except (RefusedError, UnreachableError, OutcomeUnknownError) as error:
                is_final = isinstance(error, OutcomeUnknownError) and only_if_unsent
                if isinstance(error, RefusedError):
                    is_final = not error.retriable
                wait_s = pause_s * self._random.uniform(0.5, 1.0)
                if is_final or loop.time() + wait_s >= deadline:
                    raise
            await asyncio.sleep(wait_s)
            pause_s = min(_PAUSE_LAST_S, pause_s * 2)


def _place(topic: str, receipt: Receipt) -> MessageQueue:
    """Return where a message is for the route: the retry topics of a group have no route of their own here."""
    return MessageQueue(topic, receipt.broker, receipt.queue_id)
