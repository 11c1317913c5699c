"""Receives: the calls that wait at one queue, and the pops that serve them together.

All receives of a queue have the same visibility, so one pop takes messages for many calls.  A queue with calls has one
worker, which goes round by round:

    pop       each master in turn, without waiting, until as many messages came as the calls want
    share     in the order of the calls; each gets up to the number it asked for, the first ones first
    end       a call whose time is up, or that does not wait at all, is answered as empty after a round without messages
    hold      one NOTIFICATION waits at each master; it takes nothing, so nobody's messages are with a call that is gone

When every master fails, calls go on for `PATIENCE_S` at least: that is a failover.  Messages that came for a call that
is gone are given back, visible in a second.  A new call with a long wait starts no pop while all masters are held: they
have just said that there is nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from gantry.client.popped import PoppedMessage, Receipt
from gantry.client.requests import pop_requests
from gantry.client.requests.pop_requests import ANY_QUEUE, POP_COUNT_MAX, PopSettings
from gantry.errors import GantryError, RefusedError, UnreachableError
from gantry.gateway.brokers import Brokers
from gantry.model.httpqueue import GROUP
from gantry.model.route import MessageQueue
from gantry.model.subscription import Subscription
from gantry.queues.attributes import KnownQueue
from gantry.queues.faults import QueueFaultError, no_queue
from gantry.transport.tasks import Tasks
from gantry.wire.codes import ResponseCode

log = logging.getLogger(__name__)

HELD_MAX = 20_000  # calls that wait in this process
PATIENCE_S = 8.0
_HOLD_S = 20.0  # of one NOTIFICATION; then the master is asked again
_ANSWER_S = 3.0  # of one pop
_PAUSE_S = 0.2  # after a round in which every master failed
_HASTY_S = 0.02
_AVOID_S = 1.0  # a master that failed, while others answer


class _Waiter:
    """One call: how many messages it wants, and how long it waits for them."""

    __slots__ = ("count", "future", "is_over", "patience", "round", "timer")

    def __init__(self, count: int, patience: float, future: asyncio.Future[list[PoppedMessage]]) -> None:
        self.count = count
        self.patience = patience  # loop time until which it waits while no master answers
        self.future = future
        self.timer: asyncio.TimerHandle | None = None
        self.is_over = False  # its time is up: it is answered after the next round
        self.round = 0  # the round that was under way when it came; a message sent before the call is in a later one


class QueueReceives:
    """Receives for all queues; `held` is the number of calls that wait now."""

    def __init__(self, brokers: Brokers) -> None:
        self.held = 0
        self._brokers = brokers
        self._workers: dict[tuple[str, str], _Worker] = {}
        self._tasks = Tasks()
        self._is_ending = False

    async def receive(self, queue: KnownQueue, count: int, wait_s: float) -> list[PoppedMessage]:
        """Return up to `count` messages as soon as there are some, leased; none when the time is up.

        The errors of pops when no master answered until the time was up.  A cancelled call has its messages given back.
        """
        if self._is_ending:
            return []
        if self.held >= HELD_MAX:
            raise QueueFaultError(503, "ServiceUnavailable", f"{HELD_MAX} calls wait for messages here; try again")
        key = queue.name, queue.incarnation
        worker = self._workers.get(key)
        if worker is None:
            worker = self._workers[key] = _Worker(queue, self._brokers, self._tasks, self._ended)
        worker.queue = queue  # its settings may have changed
        self.held += 1
        waiter = worker.admit(count, wait_s)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            worker.leave(waiter)
            raise
        finally:
            self.held -= 1
            if waiter.timer is not None:
                waiter.timer.cancel()

    def give_back(self, queue: KnownQueue, messages: Iterable[PoppedMessage]) -> None:
        """Make messages visible in a second, because nobody got them."""
        receipts = [one.receipt for one in messages if one.receipt is not None]
        if receipts:
            self._tasks.own(asyncio.ensure_future(_given_back(self._brokers, queue.name, receipts)))

    def drain(self) -> None:
        """Answer all calls as empty; leases stay."""
        self._is_ending = True
        for worker in list(self._workers.values()):
            worker.drain()

    async def close(self) -> None:
        """End all workers."""
        await self._tasks.close()

    def _ended(self, worker: _Worker) -> None:
        key = worker.queue.name, worker.queue.incarnation
        if self._workers.get(key) is worker:
            del self._workers[key]


class _Worker:
    """The calls of one queue.  It lives while there are some, and while requests of it are held at masters."""

    def __init__(
        self, queue: KnownQueue, brokers: Brokers, tasks: Tasks, on_end: Callable[[_Worker], None]
    ) -> None:
        self.queue = queue
        self._brokers = brokers
        self._tasks = tasks
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._waiters: dict[_Waiter, None] = {}  # in the order of the calls
        self._wanted = 0  # messages, by all of them
        self._subscription = Subscription(queue.name)
        self._woken = asyncio.Event()
        self._rounds = 0
        self._is_popping = True  # or failing: nobody is answered as empty now
        self._news: dict[str, asyncio.Task[bool]] = {}  # one held request by master
        self._avoided: dict[str, float] = {}  # masters that failed, until this loop time
        self._turn = 0
        tasks.own(asyncio.ensure_future(self._run()))

    def admit(self, count: int, wait_s: float) -> _Waiter:
        """Have a call wait; its future gets the messages."""
        now = self._loop.time()
        waiter = _Waiter(count, now + max(wait_s, PATIENCE_S), self._loop.create_future())
        waiter.round = self._rounds
        is_held = bool(self._waiters) and self._is_held()
        self._waiters[waiter] = None
        self._wanted += count
        if wait_s > 0:
            waiter.timer = self._loop.call_at(now + wait_s, self._over, waiter)
        else:
            waiter.is_over = True
        if not (wait_s > 0 and is_held):
            self._woken.set()
        return waiter

    def leave(self, waiter: _Waiter) -> None:
        """Forget a call whose client is gone; what it was given is given back."""
        future = waiter.future
        if waiter in self._waiters:
            self._remove(waiter)
        elif not future.cancelled() and future.exception() is None:
            self.give_back(future.result())

    def give_back(self, messages: Sequence[PoppedMessage]) -> None:
        """Make messages visible in a second."""
        receipts = [one.receipt for one in messages if one.receipt is not None]
        if receipts:
            self._tasks.own(asyncio.ensure_future(_given_back(self._brokers, self.queue.name, receipts)))

    def drain(self) -> None:
        """Answer all calls as empty."""
        for waiter in list(self._waiters):
            self._answer(waiter, [])

    def _answer(self, waiter: _Waiter, messages: list[PoppedMessage]) -> None:
        self._remove(waiter)
        if not waiter.future.done():
            waiter.future.set_result(messages)
        elif messages:
            self.give_back(messages)

    def _remove(self, waiter: _Waiter) -> None:
        del self._waiters[waiter]
        self._wanted -= waiter.count
        if not self._waiters:
            self._woken.set()

    def _over(self, waiter: _Waiter) -> None:
        """The time of a call is up: it is answered now, or when the round that is under way has ended."""
        waiter.is_over = True
        if not self._is_popping and waiter in self._waiters:
            self._answer(waiter, [])

    def _is_held(self) -> bool:
        """Whether every master has said that it has nothing, and will say when it has."""
        return not self._is_popping and bool(self._news) and not any(one.done() for one in self._news.values())

    async def _run(self) -> None:
        try:
            while self._waiters or await self._is_called_again():
                self._is_popping = True
                self._woken.clear()
                self._rounds += 1
                has_found, failure = await self._round()
                if failure is not None:
                    self._failed(failure)
                    await asyncio.sleep(_PAUSE_S)
                    continue
                if not has_found:
                    self._answer_late()
                self._is_popping = False
                try:
                    if self._waiters and not has_found:
                        await self._hold()
                except GantryError as error:
                    self._failed(error)
                    await asyncio.sleep(_PAUSE_S)
        finally:
            self._on_end(self)
            for task in self._news.values():
                task.cancel()
            self.drain()  # only when it was cancelled

    async def _is_called_again(self) -> bool:
        """Wait for a call while masters still hold requests of this worker: without it they would hold ever more."""
        self._woken.clear()
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            while not woken.done() and (held := [one for one in self._news.values() if not one.done()]):
                await asyncio.wait({woken, *held}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
        return bool(self._waiters)

    async def _round(self) -> tuple[bool, GantryError | None]:
        """Pop at each master once. Return whether messages came, and the error when every master failed."""
        try:
            names = await self._masters()
        except GantryError as error:
            return False, error
        failure: GantryError | None = None
        has_answer = has_found = False
        for name in names:
            if not self._wanted:
                break
            try:
                found = await self._pop(name, min(POP_COUNT_MAX, self._wanted))
            except GantryError as error:
                failure = error
                self._avoided[name] = self._loop.time() + _AVOID_S
                self._brokers.routes.doubt(self.queue.name)
                continue
            has_answer = True
            if found:
                has_found = True
                self._share(found)
        return has_found, None if has_answer else failure

    async def _masters(self) -> list[str]:
        """Return the groups to ask, the next one in turn first; those that just failed only without others."""
        queues = await self._brokers.routes.to_read(self.queue.name)
        names = sorted({queue.broker_name for queue in queues})
        if not names:
            raise UnreachableError(f"{self.queue.name}: no broker has it now")
        self._turn += 1
        first = self._turn % len(names)
        now = self._loop.time()
        names = names[first:] + names[:first]
        return [name for name in names if self._avoided.get(name, 0.0) <= now] or names

    async def _pop(self, name: str, count: int) -> list[PoppedMessage]:
        queue = MessageQueue(self.queue.name, name, ANY_QUEUE)
        settings = self._settings(count, 0.0)
        question = pop_requests.pop(queue, settings)
        result = await self._brokers.session.ask(self._brokers.routes.master(queue), question, _ANSWER_S)
        if result.unread:
            receipts = list(result.unread)
            self._tasks.own(asyncio.ensure_future(_given_back(self._brokers, queue.topic, receipts)))
        for one in result.messages:
            if one.receipt is None:
                log.error("%r: the record cannot be read and is passed over: %s", one, one.decode_error)
        return [one for one in result.messages if one.receipt is not None]

    def _settings(self, count: int, wait_s: float) -> PopSettings:
        return PopSettings(
            GROUP,
            self._subscription,
            count,
            self.queue.settings.visibility_s * 1000,
            wait_s,
            from_first=True,
            by_priority=True,
        )

    def _share(self, messages: list[PoppedMessage]) -> None:
        place = 0
        while self._waiters and place < len(messages):
            waiter = next(iter(self._waiters))
            self._answer(waiter, messages[place : place + waiter.count])
            place += waiter.count
        self.give_back(messages[place:])

    def _answer_late(self) -> None:
        """Answer the calls whose time is up, after a round that began after they came and found nothing."""
        for waiter in [one for one in self._waiters if one.is_over and one.round < self._rounds]:
            self._answer(waiter, [])

    def _failed(self, failure: GantryError) -> None:
        """Give the error to calls that have waited long enough while no master answered."""
        now = self._loop.time()
        is_final = isinstance(failure, RefusedError) and failure.code == ResponseCode.TOPIC_NOT_EXIST
        for waiter in [one for one in self._waiters if is_final or now >= one.patience]:
            self._remove(waiter)
            if not waiter.future.done():
                waiter.future.set_exception(no_queue(self.queue.name) if is_final else failure)

    async def _hold(self) -> None:
        """Wait until a master may have messages, or a call came that needs another round, or none is left.

        The errors of routes.
        """
        for name in sorted({one.broker_name for one in await self._brokers.routes.to_read(self.queue.name)}):
            task = self._news.get(name)
            if task is None or task.done():
                self._news[name] = self._tasks.own(asyncio.ensure_future(self._hear(name)))
        begun = self._loop.time()
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait({woken, *self._news.values()}, return_when=asyncio.FIRST_COMPLETED)
            if not woken.done() and self._loop.time() - begun < _HASTY_S:
                # It said so at once: another server took them, or they are not to be had. Not again at full speed.
                await asyncio.wait({woken}, timeout=_HASTY_S)
        finally:
            woken.cancel()

    async def _hear(self, name: str) -> bool:
        """Return when a master has messages, or after a while; errors are those of the pop that follows."""
        queue = MessageQueue(self.queue.name, name, ANY_QUEUE)
        question = pop_requests.notification(queue, self._settings(1, _HOLD_S))
        try:
            return await self._brokers.session.ask(
                self._brokers.routes.master(queue), question, _HOLD_S + _ANSWER_S
            )
        except GantryError as error:
            log.info("queue %s: %s does not tell of messages: %s", queue.topic, name, error)
            self._brokers.routes.doubt(queue.topic)
            await asyncio.sleep(_PAUSE_S)
            return False


async def _given_back(brokers: Brokers, topic: str, receipts: list[Receipt]) -> None:
    try:
        await brokers.popping.give_back(GROUP, topic, receipts)
    except GantryError as error:
        log.info("%s: messages become visible only when their leases end: %s", topic, error)
