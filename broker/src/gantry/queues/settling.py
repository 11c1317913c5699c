"""Deletes and changes of visibility, by handle.

Deletes of one turn of the loop go to each broker as one request, whose answer says of each whether its handle was still
good.  When that request fails, each delete is repeated by itself at the present master until the time is up; then a
message that was acknowledged already counts as deleted by us.

A change is not repeated when its answer was lost: the old handle may be void, and only the answer has the new one.
The caller gets 500, and repeats it or receives the message again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gantry.client.popped import Receipt
from gantry.client.requests import pop_requests, queue_requests
from gantry.client.requests import recall as recall_requests
from gantry.client.requests.question import Question
from gantry.client.requests.recall import queue_of
from gantry.errors import GantryError, OutcomeUnknownError, RefusedError
from gantry.gateway.brokers import Brokers
from gantry.model.httpqueue import GROUP
from gantry.queues.attributes import KnownQueue
from gantry.queues.faults import QueueFaultError, no_message
from gantry.queues.handles import DelayedPlace, QueueHandles
from gantry.wire.codes import ResponseCode

T = TypeVar("T")

SETTLE_S = 10.0  # longer than a failover of a few seconds
_FIRST_S = 3.0  # of the common request
_GONE = (ResponseCode.NO_MESSAGE, ResponseCode.ILLEGAL_OPERATION, ResponseCode.TOPIC_NOT_EXIST)


@dataclass(slots=True)
class _Acks:
    """The deletes of one turn at one broker."""

    receipts: list[Receipt] = field(default_factory=list)
    futures: list[asyncio.Future[bool]] = field(default_factory=list)


class QueueSettles:
    """Settles messages of all queues."""

    def __init__(self, brokers: Brokers, handles: QueueHandles) -> None:
        self._brokers = brokers
        self._handles = handles
        self._gathered: dict[tuple[str, str], _Acks] = {}  # by topic and broker
        self._leaving: set[asyncio.Task[None]] = set()

    async def delete(self, queue: KnownQueue, handle: str) -> None:
        """Delete a message; QueueFaultError ReceiptHandleError or MessageNotExist, and the errors of requests."""
        place = self._handles.read(queue, handle)
        if isinstance(place, DelayedPlace):
            question = recall_requests.recall(GROUP, place.recall_handle, queue_of(place.recall_handle))
            await self._if_there(place.broker, question)
        elif not await self._acked(queue.name, place):
            raise no_message()

    async def delete_all(self, queue: KnownQueue, handles: Sequence[str]) -> list[GantryError | None]:
        """Delete messages. Return for each None, or its error as of `delete`."""
        done: list[GantryError | None] = [None] * len(handles)
        gathered: dict[int, tuple[Receipt, asyncio.Future[bool]]] = {}
        others: list[int] = []
        for index, handle in enumerate(handles):
            try:
                place = self._handles.read(queue, handle)
            except QueueFaultError as fault:
                done[index] = fault
                continue
            if isinstance(place, DelayedPlace):
                others.append(index)
            else:
                gathered[index] = place, self._gather(queue.name, place)
        deadline = asyncio.get_running_loop().time() + SETTLE_S
        for index, (place, future) in gathered.items():
            try:
                done[index] = None if await self._settled(queue.name, place, future, deadline) else no_message()
            except GantryError as error:
                done[index] = error
        recalls = [self.delete(queue, handles[index]) for index in others]  # together: each may wait for a failover
        for index, result in zip(others, await asyncio.gather(*recalls, return_exceptions=True), strict=True):
            if isinstance(result, GantryError):
                done[index] = result
            elif result is not None:
                raise result
        return done

    async def change(self, queue: KnownQueue, handle: str, seconds: int) -> str:
        """Make a message visible so many seconds from now. Return its new handle; errors as of `delete`."""
        place = self._handles.read(queue, handle)
        if isinstance(place, DelayedPlace):
            retime = queue_requests.retime(queue.name, place.recall_handle, seconds * 1000)
            renewed = await self._if_there(place.broker, retime, only_if_unsent=True)
            return self._handles.delayed(queue, renewed) if renewed else handle
        question = pop_requests.change(GROUP, queue.name, place, seconds * 1000)
        return self._handles.leased(queue, await self._if_there(place.broker, question, only_if_unsent=True))

    async def _acked(self, topic: str, receipt: Receipt) -> bool:
        deadline = asyncio.get_running_loop().time() + SETTLE_S
        return await self._settled(topic, receipt, self._gather(topic, receipt), deadline)

    async def _settled(self, topic: str, receipt: Receipt, first: asyncio.Future[bool], deadline: float) -> bool:
        """Return whether a message was deleted by us; the first attempt is under way."""
        try:
            return await first
        except GantryError as error:
            if isinstance(error, RefusedError) and not error.retriable:
                if error.code in _GONE:
                    return False
                raise
        left_s = deadline - asyncio.get_running_loop().time()
        question = queue_requests.ack_again(GROUP, topic, receipt)
        try:
            return await self._brokers.until_done(receipt.broker, question, left_s)
        except RefusedError as error:
            if error.code in _GONE:
                return False
            raise

    def _gather(self, topic: str, receipt: Receipt) -> asyncio.Future[bool]:
        loop = asyncio.get_running_loop()
        key = topic, receipt.broker
        acks = self._gathered.get(key)
        if acks is None or len(acks.receipts) >= queue_requests.ACKS_MAX:
            acks = self._gathered[key] = _Acks()
            loop.call_soon(self._leave, key, acks)
        future: asyncio.Future[bool] = loop.create_future()
        acks.receipts.append(receipt)
        acks.futures.append(future)
        return future

    def _leave(self, key: tuple[str, str], acks: _Acks) -> None:
        if self._gathered.get(key) is acks:
            del self._gathered[key]
        task = asyncio.ensure_future(self._send(key[0], key[1], acks))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _send(self, topic: str, broker: str, acks: _Acks) -> None:
        try:
            address = await self._brokers.master_of(broker)
            question = queue_requests.ack_each(GROUP, topic, acks.receipts)
            found = await self._brokers.session.ask(address, question, _FIRST_S)
        except GantryError as error:
            self._brokers.doubt_masters()
            for future in acks.futures:
                if not future.done():
                    future.set_exception(_own(error))
            return
        for future, was_open in zip(acks.futures, found, strict=True):
            if not future.done():
                future.set_result(was_open)

    async def _if_there(
        self, broker: str, question: Question[T], only_if_unsent: bool = False
    ) -> T:
        try:
            return await self._brokers.until_done(broker, question, SETTLE_S, only_if_unsent)
        except RefusedError as error:
            if error.code in _GONE:
                raise no_message() from error
            raise


def _own(error: GantryError) -> GantryError:
    """Return an error for one caller: what is raised twice would have the traces of both."""
    if isinstance(error, RefusedError):
        return RefusedError(error.code, error.remark)
    return OutcomeUnknownError(str(error))
