"""One queue of a consumer: pulls it, keeps its window, says what may be committed.

The loop has one pull on its way at most, and none while the window is full, or the consumer's memory is and the window
holds messages.  It lives until the queue goes to another member.  Errors are waited out with a growing pause; a wrong
route is asked for again.  An offset outside the queue (the messages expired, or the queue was made again) moves
the window to where the broker says, and so does a reset of the group: another life of the queue begins, in which the
same offsets may be other messages, so what is still in work from the former one no longer counts.

Every pull tells the master how far we are, which costs no request of its own: who gets the queue after us, and a broker
that lost the last commits in a crash, know it up to the messages in work.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Protocol

from gantry.client.connections.replicas import Replicas
from gantry.client.connections.routes import Routes
from gantry.client.consuming.errands import QueueInfo
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
_PULL_MARGIN_S = 15.0  # beyond the time that the broker may hold a pull; RocketMQ waits 30 s for 15
_PAUSE_FIRST_S = 0.1
_PAUSE_LAST_S = 1.0  # a broker that restarted is asked again within two seconds
_CAUSES_MAX = 32
_HELD_S = 0.05  # an empty answer that comes sooner was not held: the next pull waits a little


class Starts(Protocol):
    """Anyone who knows where a queue is to be begun."""

    async def start(self, queue: MessageQueue, settings: ConsumerSettings, now_ms: int) -> int:
        """The offset to begin at."""
        ...


class Memory:
    """Bytes of unfinished messages of all queues of a consumer."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._freed = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether nothing should be pulled."""
        return self.bytes >= self._bytes_max

    def take(self, count: int) -> None:
        """More bytes."""
        self.bytes += count

    def give_back(self, count: int) -> None:
        """Fewer bytes, or at least a message that ended: anyone who waits looks again."""
        self.bytes -= count
        self._freed.set()

    async def wait(self) -> None:
        """Until something was given back."""
        self._freed.clear()
        await self._freed.wait()


class Intake:
    """Pulls one queue until it is left; `deliver` gets every message that passes the filter."""

    def __init__(
        self,
        queue: MessageQueue,
        pulling: PullSettings,
        memory: Memory,
        deliver: Callable[[Intake, StoredMessage], None],
        tallies: Tallies | None = None,
    ) -> None:
        self.queue = queue
        self.is_leaving = False  # nothing is handed out any more
        self.is_dropped = False  # and what ends no longer counts
        self.life = 0  # how often the window was moved
        self.committed: int | None = None  # what the broker has been told, or said itself
        self._pulling = pulling
        self._memory = memory
        self._deliver = deliver
        self._tallies = tallies
        self._window: Window | None = None  # None until the start position is known
        self._pause_s = 0.0
        self._random = random.Random()  # jitter: consumers that lost one broker together must not come back together
        self._in_work: set[int] = set()  # offsets that were handed out and have not ended
        self._has_ended = asyncio.Event()
        self._causes: set[str] = set()  # why messages could not be decoded, as far as that was reported

    @property
    def progress(self) -> int | None:
        """The smallest unfinished offset; None until the start is known."""
        return None if self._window is None else self._window.progress

    @property
    def to_commit(self) -> int | None:
        """The offset that the broker should be told, None when it knows."""
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
        """Find the start, then pull for ever; ends by cancellation.

        With `tells` every pull from a master commits how far we are.
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
        """A message is in work from now on."""
        self._in_work.add(offset)

    def put_down(self, offset: int, life: int) -> None:
        """A message is no longer in work, and not finished either."""
        if life == self.life:
            self._in_work.discard(offset)
            self._has_ended.set()

    def finish(self, offset: int, life: int) -> bool:
        """A message that was delivered in this life has ended; False when that is too late to count."""
        counts = self._window is not None and not self.is_dropped and life == self.life
        if self._window is not None and counts:
            self._memory.give_back(self._window.finish(offset))
        self.put_down(offset, life)
        return counts

    def move(self, offset: int) -> None:
        """Go on elsewhere; whatever was in work no longer counts.  Before the start is known, the broker knows it."""
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
        """How it goes, for a tool that asks."""
        window, committed = self._window, -1 if self.committed is None else self.committed
        if window is None:
            return QueueInfo(self.queue, committed, 0, 0, 0, 0, is_locked, self.is_leaving)
        held = window.progress, window.next_offset, window.count, window.bytes
        return QueueInfo(self.queue, committed, *held, is_locked, self.is_leaving)

    async def leave(self, within_s: float) -> None:
        """Let what is in work end for so long; then the queue is no longer ours, and nothing counts any more."""
        self.is_leaving = True
        try:
            async with asyncio.timeout(within_s):
                await self.idle()
        except TimeoutError:
            log.info("%s: left with %d messages in work; they come again", self.queue, len(self._in_work))
        finally:
            self.drop()

    async def idle(self) -> None:
        """Until nothing is in work."""
        while self._in_work:
            self._has_ended.clear()
            await self._has_ended.wait()

    def drop(self) -> None:
        """The queue is no longer ours; nothing counts any more."""
        if self._window is not None and not self.is_dropped:
            self._memory.give_back(self._window.bytes)
        self.is_leaving = self.is_dropped = True

    async def _open(self, offsets: Starts, settings: ConsumerSettings, now_ms: int) -> None:
        offset = await offsets.start(self.queue, settings, now_ms)
        self._window = Window(offset, settings.queue_messages_max, settings.queue_span_max)
        log.info("%s: begins at %d", self.queue, offset)

    async def _pull(self, replicas: Replicas, window: Window, tells: bool) -> None:
        # A queue that holds nothing pulls all the same: others may hold the memory for as long as a message fails.
        while window.is_full or (self._memory.is_full and window.count):
            await self._memory.wait()
        started, life = asyncio.get_running_loop().time(), self.life
        progress, offset = window.progress if tells else None, window.next_offset
        result, is_told = await replicas.pull(self.queue, offset, self._pulling, progress, _PULL_MARGIN_S)
        if life != self.life:
            return  # it was asked for before the move
        if is_told:
            self.committed = progress
        took_s = asyncio.get_running_loop().time() - started
        if self._tallies is not None and result.messages:
            self._tallies.pulled(self.queue.topic, len(result.messages), took_s)
        self._take(result, window)
        was_held = took_s >= _HELD_S
        # Nothing new, or a broker that is behind us and wants to be asked again.
        is_empty = result.status in (PullStatus.NO_NEW_MESSAGE, PullStatus.NO_MATCH) and result.next_offset <= offset
        if is_empty and not was_held:
            self._pause_s = min(1.0, max(_HELD_S, self._pause_s * 2))
            await asyncio.sleep(self._pause_s)
        else:
            self._pause_s = 0.0

    def _take(self, result: PullResult, window: Window) -> None:
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning("%s: offset %d is not there, moved to %d", self.queue, window.next_offset, result.next_offset)
            self.move(result.next_offset)
            return
        wanted = self._pulling.subscription.tags
        for message in result.messages:
            if message.queue_offset < window.next_offset:
                continue
            if message.is_unreadable:
                self._pass_over(message)
                continue
            # The broker compares hashes of tags only.
            if not wanted or message.tags in wanted:
                held = max(message.size, len(message.body))  # a decompressed body is larger than its record
                window.put(message.queue_offset, held)
                self._memory.take(held)
                if message.decode_error:
                    self._warn(message)
                self._deliver(self, message)
        window.reached(result.next_offset)

    async def _renew_route(self, routes: Routes) -> None:
        try:
            await routes.to_read(self.queue.topic)
        except _FAULTS as error:
            self._complain(f"no route: {error}")

    def _warn(self, message: StoredMessage) -> None:
        """Report a message that cannot be decoded: the first of each cause, the others are for who looks closely."""
        is_new = message.decode_error not in self._causes and len(self._causes) < _CAUSES_MAX
        if is_new:
            self._causes.add(message.decode_error)
        text = "%s: message %s at offset %d cannot be decoded: %s; later ones of this cause are logged at level DEBUG"
        told = self.queue, message.message_id, message.queue_offset, message.decode_error
        log.log(logging.WARNING if is_new else logging.DEBUG, text, *told)

    def _pass_over(self, message: StoredMessage) -> None:
        """Name a record of which nobody can make a message, the broker that would take it back neither."""
        text = "%s: the record at offset %d, %d bytes at log offset %d, cannot be read and is passed over: %s"
        log.error(text, self.queue, message.queue_offset, message.size, message.log_offset, message.decode_error)

    def _complain(self, text: str) -> None:
        """Say it at the first failure of a row; the others are for who looks closely."""
        is_new = self._pause_s == _PAUSE_FIRST_S
        log.log(logging.WARNING if is_new else logging.DEBUG, "%s: %s", self.queue, text)
