"""One queue of an orderly consumer: its messages are processed one after the other, while this member holds its lock.

    waiting for the lock -> the committed offset is read, pulling begins -> messages are processed
    -> the queue is given up, or the lock is lost: pulling ends, progress is committed if the lock is still held

The start is read only after the lock was granted, and progress is committed before the lock is given back, so the next
owner begins where this one ended.  Messages that were pulled and not processed are dropped; the next owner pulls them.

A failed message stops its queue: it is tried again after a pause.  The next message follows when the failed one has
succeeded, or has become a dead letter by the listener or the settings, or when the group was reset.

A listener that still runs when the lock ends by our own clock is cancelled.  It can clean up, because the broker keeps
the lock for another half minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from gantry.client.connections.replicas import Replicas
from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.consuming.broker_requests import QueueInfo
from gantry.client.consuming.intake import Intake, Memory
from gantry.client.consuming.offsets import RemoteOffsets
from gantry.client.consuming.queue_lock import Lease
from gantry.client.consuming.redelivery import LADDER_S
from gantry.client.hooks import called
from gantry.client.received import LEVEL_DEAD, Again, ReceivedMessage
from gantry.client.requests import questions
from gantry.client.requests.questions import PullSettings
from gantry.client.settings import ConsumerSettings, OrderSettings, StartFrom
from gantry.client.tallies import Tallies
from gantry.clock import Clock
from gantry.errors import OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.model.message import RETRY_TOPIC, StoredMessage
from gantry.model.names import is_retry_topic
from gantry.model.route import MessageQueue

log = logging.getLogger(__name__)

_FAULTS = (RefusedError, UnreachableError, OutcomeUnknownError, RemoteProtocolError)
_TIMEOUT_S = 5.0
_LOOK_S = 1.0  # how often the lock is checked while a listener runs: it may also be refused


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Shared parts of all queues of one consumer."""

    session: Session
    routes: Routes
    replicas: Replicas
    offsets: RemoteOffsets
    memory: Memory
    settings: ConsumerSettings
    order: OrderSettings
    clock: Clock
    listener: Callable[[ReceivedMessage], Awaitable[None]]
    places: asyncio.Semaphore  # bounds the running listeners
    tallies: Tallies


class OrderlyQueue:
    """Processes one queue until `leave`; `run` returns when all its tasks have ended."""

    def __init__(self, queue: MessageQueue, pulling: PullSettings, around: Surroundings) -> None:
        self.queue = queue
        self.lease = Lease(around.order.lock_valid_s)
        self.is_leaving = False
        self._pulling = pulling
        self._around = around
        self._waiting: deque[tuple[StoredMessage, int]] = deque()  # with the life of the intake; bounded by its window
        self._intake: Intake | None = None  # set while the lock is held
        self._news = asyncio.Event()  # set at a message, a change of the lock, and at leave()
        self._interrupted = asyncio.Event()  # set at leave() and at a reset of the group

    def leave(self) -> None:
        """Start no further message; a running listener ends first."""
        self.is_leaving = True
        self._interrupted.set()
        self._news.set()

    def move(self, offset: int) -> None:
        """Continue at another offset after a reset of the group, when the running listener has ended."""
        if self._intake is not None:
            self._intake.move(offset)
            self._interrupted.set()
            self._news.set()

    def info(self) -> QueueInfo:
        """Return the queue's state, for tools."""
        if self._intake is None:
            return QueueInfo(self.queue, -1, 0, 0, 0, 0, self._may_tell(), self.is_leaving)
        return self._intake.info(self._may_tell())

    def look(self) -> None:
        """Note that the lock may have changed."""
        self._news.set()

    async def run(self) -> None:
        """Process messages whenever the lock is held, until `leave`."""
        while not self.is_leaving:
            if self._may_work():
                await self._serve()
            else:
                self._news.clear()
                await self._news.wait()

    async def commit(self) -> None:
        """Commit the progress, if the lock is held."""
        intake = self._intake
        offset = None if intake is None or not self._may_tell() else intake.to_commit
        if intake is None or offset is None:
            return
        try:
            if await self._around.offsets.commit(self.queue, offset):
                intake.committed = offset
        except _FAULTS as error:
            log.warning("%s: offset %d not committed: %s", self.queue, offset, error)

    def _may_tell(self) -> bool:
        return self.lease.is_held(asyncio.get_running_loop().time())

    def _may_work(self) -> bool:
        return not self.is_leaving and self._may_tell()

    async def _serve(self) -> None:
        around = self._around
        settings = around.settings
        if is_retry_topic(self.queue.topic):
            # RocketMQ: wherever a group begins, none of its redeliveries is skipped.
            settings = replace(settings, start_from=StartFrom.FIRST)
        self._intake = intake = Intake(self.queue, self._pulling, around.memory, self._deliver, around.tallies)
        running = intake.run(
            around.replicas, around.routes, around.offsets, settings, around.clock.now_ms()
        )
        pulling = asyncio.create_task(running, name=f"gantry-pull-{self.queue.topic}-{self.queue.queue_id}")
        pulling.add_done_callback(lambda _: self._news.set())
        try:
            while (found := await self._next(intake, pulling)) is not None:
                stored, life = found
                if await self._ends(stored, intake, life):
                    self._waiting.popleft()
                    intake.finish(stored.queue_offset, life)
        finally:
            pulling.cancel()
            await asyncio.wait([pulling])
            await self.commit()
            await intake.leave(0.0)
            self._waiting.clear()
            self._intake = None

    async def _next(self, intake: Intake, pulling: asyncio.Task[None]) -> tuple[StoredMessage, int] | None:
        """Return the next message and its life; None when the lock is not held any more."""
        while self._may_work():
            if pulling.done():
                pulling.result()
            while self._waiting and self._waiting[0][1] != intake.life:
                self._waiting.popleft()
            if self._waiting:
                return self._waiting[0]
            self._news.clear()
            await self._heard(self._news, self.lease.left_s(asyncio.get_running_loop().time()))
        return None

    async def _ends(self, stored: StoredMessage, intake: Intake, life: int) -> bool:
        """Process a message until it succeeds, is a dead letter, or the group was reset. False: the queue was lost
        before.
        """
        attempts_max = self._around.order.attempts_max
        attempt = 1 + stored.reconsume_times
        if not self.is_leaving:
            self._interrupted.clear()
        while intake.life == life:
            async with self._around.places:
                if not self._may_work():
                    return False
                # An undecodable message is a dead letter at once, because its queue would wait for ever.
                wish = Again(LEVEL_DEAD) if stored.decode_error else await self._call(stored, attempt)
            if wish is None:
                return True
            is_dead = wish.level == LEVEL_DEAD or (attempts_max is not None and attempt >= attempts_max)
            if is_dead and self._may_tell() and await self._is_given_up(stored):
                return True
            attempt += 1
            await self._heard(self._interrupted, self._pause_s(wish))
        return True

    def _pause_s(self, wish: Again) -> float:
        if wish.level > 0:
            return LADDER_S[min(wish.level, len(LADDER_S)) - 1]
        return self._around.order.suspend_s if wish.after_s is None else wish.after_s

    async def _is_given_up(self, stored: StoredMessage) -> bool:
        around = self._around
        question = questions.send_back(self._pulling.group, stored, LEVEL_DEAD, None)
        try:
            await around.session.ask(around.routes.master(self.queue), question, _TIMEOUT_S)
        except _FAULTS as error:
            log.warning("%s: %d not given up yet, it is tried again: %s", self.queue, stored.queue_offset, error)
            around.routes.doubt(self.queue.topic)
            return False
        return True

    async def _call(self, stored: StoredMessage, attempt: int) -> Again | None:
        """Call the listener once. Return None when it succeeded, else how the message is to be delivered again."""
        around = self._around
        wishes: list[Again] = []

        async def again(received: ReceivedMessage, wish: Again) -> None:
            if not received.is_over:  # the listener's first result counts
                received.is_over = True
                wishes.append(wish)

        message = ReceivedMessage(stored, self.queue, _finished, again)
        message.attempt = attempt
        call = called(around.listener, message, self._pulling.group, around.settings.hooks, around.tallies)
        task = asyncio.create_task(call)
        try:
            while not task.done():
                left_s = self.lease.left_s(asyncio.get_running_loop().time())
                if not left_s:
                    log.error("%r: the lock has ended, the listener is cancelled", message)
                    break
                await asyncio.wait([task], timeout=min(left_s, _LOOK_S))
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        if task.cancelled() or task.exception() is not None:
            log.error("%r: the listener failed", message, exc_info=None if task.cancelled() else task.exception())
            return Again()
        return wishes[0] if wishes else None

    async def _heard(self, event: asyncio.Event, at_most_s: float) -> None:
        try:
            async with asyncio.timeout(at_most_s):
                await event.wait()
        except TimeoutError:
            pass

    def _deliver(self, intake: Intake, stored: StoredMessage) -> None:
        if is_retry_topic(stored.topic):
            stored = replace(stored, topic=stored.properties.get(RETRY_TOPIC, stored.topic))
        self._waiting.append((stored, intake.life))
        self._news.set()


def _finished(_: ReceivedMessage) -> bool:
    """Accept the acknowledgement without effect: returning from the listener is enough."""
    return True
