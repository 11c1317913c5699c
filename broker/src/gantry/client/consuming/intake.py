"""One queue of a consumer: pulls messages, keeps the window, and knows the offset to commit.

At most one pull is under way.  There is none while the window is full, or while the consumer's memory is full and the
window holds messages.  The loop runs until the queue goes to another member.  After an error it pauses, longer each
time, and asks for the route again.

An offset outside the queue (the messages expired, or the queue was created again) moves the window to the broker's
offset, and so does a reset of the group.  This begins another `life` of the queue, in which the same offsets may be
other messages.  So messages in work from the former life no longer count.

Every pull carries the progress to the master, without an extra request.  So the next owner of the queue, and a broker
that lost the last commits in a crash, know the progress up to the messages in work.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Protocol

from gantry.client.connections.replicas import Replicas
from gantry.client.connections.routes import Routes
from gantry.client.consuming.broker_requests import QueueInfo
from gantry.client.consuming.window import Window
from gantry.client.requests.questions import PullSettings
from gantry.client.results import PullResult, PullStatus
from gantry.client.settings import ConsumerSettings
from gantry.client.tallies import Tallies
from gantry.errors import OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.model.message import StoredMessage
from gantry.model.route import MessageQueue

log = logging.getLogger(__name__)

_FAULTS = (RefusedError, UnreachableError, OutcomeUnknownError, RemoteProtocolError)
_PULL_MARGIN_S = 15.0  # beyond the time that the broker may hold a pull; RocketMQ waits 30 s for a hold of 15 s
_PAUSE_FIRST_S = 0.1
_PAUSE_LAST_S = 1.0  # so that a restarted broker is asked again within two seconds
_CAUSES_MAX = 32
_HELD_S = 0.05  # an empty answer that comes sooner was not held: the next pull waits a little


class Starts(Protocol):
    """Finds the offset at which to begin a queue; implemented by `Offsets`, `LocalOffsets` and `At`."""

    async def start(self, queue: MessageQueue, settings: ConsumerSettings, now_ms: int) -> int:
        """Return the offset to begin at."""
        ...


class Memory:
    """Counts the bytes of unfinished messages of all queues of a consumer."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0  # the intake that takes a message adds its bytes
        self._bytes_max = bytes_max
        self._freed = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether no more messages should be pulled."""
        return self.bytes >= self._bytes_max

    def give_back(self, count: int) -> None:
        """Count fewer bytes, and wake waiting queues; also for a finished message of 0 bytes."""
        self.bytes -= count
        self._freed.set()

    async def wait(self) -> None:
        """Wait until bytes were given back."""
        self._freed.clear()
        await self._freed.wait()


class Intake:
    """Pulls one queue until it is left; `deliver` is called with every message that passes the filter."""

    def __init__(
        self,
        queue: MessageQueue,
        pulling: PullSettings,
        memory: Memory,
        deliver: Callable[[Intake, StoredMessage], None],
        tallies: Tallies | None = None,
    ) -> None:
        self.queue = queue
        self.is_leaving = False  # no message is handed out any more
        self.is_dropped = False  # finished messages no longer count either
        self.life = 0  # how often the window was moved
        self.committed: int | None = None  # the offset that the broker has
        self.has_begun = asyncio.Event()  # set when the start is known
        self._pulling = pulling
        self._memory = memory
        self._deliver = deliver
        self._tallies = tallies
        self._window: Window | None = None  # None until the start position is known
        self._pause_s = 0.0
        self._random = random.Random()  # jitter, so that consumers that lost a broker together do not retry together
        self._in_work: set[int] = set()  # offsets that were handed out and are not finished
        self._has_ended = asyncio.Event()
        self._causes: set[str] = set()  # reasons of undecodable messages that were already logged

    @property
    def progress(self) -> int | None:
        """The smallest unfinished offset; None until the start is known."""
        return None if self._window is None else self._window.progress

    @property
    def to_commit(self) -> int | None:
        """The offset to commit; None when the broker has it."""
        if self._window is None or self._window.progress == self.committed:
            return None
        return self._window.progress

    async def run(
        self,
        replicas: Replicas,
        routes: Routes,
        offsets: Starts,
        settings: ConsumerSettings,
        now_ms: int,
        tells: bool = True,
    ) -> None:
        """Find the start, then pull until cancelled.

        tells: every pull from a master carries the progress.
        """
        while True:
            try:
                if self._window is None:
                    await self._open(offsets, settings, now_ms)
                else:
                    await self._pull(replicas, self._window, tells)
            except _FAULTS as error:
                routes.doubt(self.queue.topic)
                self._pause_s = min(_PAUSE_LAST_S, max(_PAUSE_FIRST_S, self._pause_s * 2))
                self._complain(str(error))
                await asyncio.sleep(self._pause_s * self._random.uniform(0.5, 1.0))
                await self._renew_route(routes)

    def hand_out(self, offset: int) -> None:
        """Note that a message is in work."""
        self._in_work.add(offset)

    def put_down(self, offset: int, life: int) -> None:
        """Note that a message is no longer in work, and not finished."""
        if life == self.life:
            self._in_work.discard(offset)
            self._has_ended.set()

    def finish(self, offset: int, life: int) -> bool:
        """Note that a message of this life is finished. Return False when that is too late to count."""
        window = self._window
        if window is None or self.is_dropped or life != self.life:
            self.put_down(offset, life)
            return False
        self._memory.give_back(window.finish(offset))
        self._in_work.discard(offset)
        self._has_ended.set()
        return True

    def move(self, offset: int) -> None:
        """Continue at another offset; messages in work no longer count. No effect before the start is known."""
        window = self._window
        if window is None:
            return
        self._memory.give_back(window.bytes)
        window.move(offset)
        self.life += 1
        self.committed = None
        self._in_work.clear()
        self._has_ended.set()

    def info(self, is_locked: bool = False) -> QueueInfo:
        """Return the queue's state, for tools."""
        window, committed = self._window, -1 if self.committed is None else self.committed
        if window is None:
            return QueueInfo(self.queue, committed, 0, 0, 0, 0, is_locked, self.is_leaving)
        held = window.progress, window.next_offset, window.count, window.bytes
        return QueueInfo(self.queue, committed, *held, is_locked, self.is_leaving)

    async def leave(self, within_s: float) -> None:
        """Wait at most `within_s` for messages in work, then drop the queue."""
        self.is_leaving = True
        try:
            async with asyncio.timeout(within_s):
                await self.idle()
        except TimeoutError:
            log.info("%s: left with %d messages in work; they are delivered again", self.queue, len(self._in_work))
        finally:
            self.drop()

    async def idle(self) -> None:
        """Wait until no message is in work, or they no longer count."""
        while self._in_work and not self.is_dropped:
            self._has_ended.clear()
            await self._has_ended.wait()

    def drop(self) -> None:
        """Note that the queue belongs to another member; finished messages no longer count."""
        if self._window is not None and not self.is_dropped:
            self._memory.give_back(self._window.bytes)
        self.is_leaving = self.is_dropped = True
        self._has_ended.set()

    async def _open(self, offsets: Starts, settings: ConsumerSettings, now_ms: int) -> None:
        offset = await offsets.start(self.queue, settings, now_ms)
        self._window = Window(offset, settings.queue_messages_max, settings.queue_span_max)
        log.info("%s: begins at %d", self.queue, offset)
        self.has_begun.set()

    async def _pull(self, replicas: Replicas, window: Window, tells: bool) -> None:
        # A queue without messages pulls even so: other queues may hold the memory for as long as a message fails.
        while window.is_full or (self._memory.is_full and window.count):
            await self._memory.wait()
        started, life = asyncio.get_running_loop().time(), self.life
        progress, offset = window.progress if tells else None, window.next_offset
        result, is_told = await replicas.pull(self.queue, offset, self._pulling, progress, _PULL_MARGIN_S)
        if life != self.life:
            return  # the pull was sent before the move
        if is_told:
            self.committed = progress
        took_s = asyncio.get_running_loop().time() - started
        if self._tallies is not None and result.messages:
            self._tallies.pulled(self.queue.topic, len(result.messages), took_s)
        self._take(result, window)
        was_held = took_s >= _HELD_S
        # There is no new message, or the broker is behind this offset.
        is_empty = result.status in (PullStatus.NO_NEW_MESSAGE, PullStatus.NO_MATCH) and result.next_offset <= offset
        if is_empty and not was_held:
            self._pause_s = min(1.0, max(_HELD_S, self._pause_s * 2))
            await asyncio.sleep(self._pause_s)
        else:
            self._pause_s = 0.0

    def _take(self, result: PullResult, window: Window) -> None:
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning("%s: offset %d does not exist, moved to %d", self.queue, window.next_offset, result.next_offset)
            self.move(result.next_offset)
            return
        wanted, deliver, memory = self._pulling.subscription.tags, self._deliver, self._memory
        for message in result.messages:
            if message.queue_offset < window.next_offset:
                continue
            if message.decode_error and message.is_unreadable:
                self._pass_over(message)
                continue
            # The broker compares hashes of tags only.
            if not wanted or message.tags in wanted:
                held = message.size
                if message.sys_flag and held < len(message.body):
                    held = len(message.body)  # a decompressed body is larger than its record
                window.put(message.queue_offset, held)
                memory.bytes += held
                if message.decode_error:
                    self._warn(message)
                deliver(self, message)
        window.reached(result.next_offset)

    async def _renew_route(self, routes: Routes) -> None:
        try:
            await routes.to_read(self.queue.topic)
        except _FAULTS as error:
            self._complain(f"no route: {error}")

    def _warn(self, message: StoredMessage) -> None:
        """Log an undecodable message: the first of each reason as a warning, later ones at level DEBUG."""
        is_new = message.decode_error not in self._causes and len(self._causes) < _CAUSES_MAX
        if is_new:
            self._causes.add(message.decode_error)
        text = "%s: message %s at offset %d cannot be decoded: %s; later ones of this cause are logged at level DEBUG"
        told = self.queue, message.message_id, message.queue_offset, message.decode_error
        log.log(logging.WARNING if is_new else logging.DEBUG, text, *told)

    def _pass_over(self, message: StoredMessage) -> None:
        """Log a record that is skipped: neither this client nor the broker can make a message of it."""
        text = "%s: the record at offset %d, %d bytes at log offset %d, cannot be read and is passed over: %s"
        log.error(text, self.queue, message.queue_offset, message.size, message.log_offset, message.decode_error)

    def _complain(self, text: str) -> None:
        """Log the first failure of a row as a warning, later ones at level DEBUG."""
        is_new = self._pause_s == _PAUSE_FIRST_S
        log.log(logging.WARNING if is_new else logging.DEBUG, "%s: %s", self.queue, text)
