"""Sends stubs when their transaction was committed, and stores where the broker put them.

    offer   a stub of a committed transaction; False when too many wait: a resend finds it when it is due
    run     sends what was offered, many at a time, and stores the places in batches, each a transaction by itself

Nothing here is needed for the guarantee: what is lost with this process, refused, or not placed is found by a resend.
So every wait is bounded, and a failure is counted and logged, not raised.  Messages with one key are sent one after the
other; after a failure their order is that of the resends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gantry.client.outgoing import Copy
from gantry.client.producer import Producer
from gantry.client.results import SendResult
from gantry.errors import GantryError
from gantry.guarantee.producing import OutgoingStub, StoredPlace
from gantry.transport.tasks import cancelled

log = logging.getLogger(__name__)

SavePlaces = Callable[[Sequence[StoredPlace]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SendingSettings:
    """Bounds of what waits to be sent and to be placed."""

    waiting_max: int = 10_000
    in_flight_max: int = 256
    places_max: int = 500  # stored in one statement
    places_after_s: float = 0.2  # or when the oldest is so old
    drain_s: float = 5.0  # at the end


@dataclass(slots=True)
class SendingCounts:
    """What became of the stubs."""

    sent: int = 0
    placed: int = 0
    not_placed: int = 0
    left_to_resend: int = 0


class StubSender:
    """Sends in the background; owned by one event loop."""

    def __init__(self, producer: Producer, save: SavePlaces, settings: SendingSettings) -> None:
        self.counts = SendingCounts()
        self._producer = producer
        self._save = save
        self._settings = settings
        self._waiting: asyncio.Queue[OutgoingStub] = asyncio.Queue(settings.waiting_max)
        self._stored: asyncio.Queue[StoredPlace] = asyncio.Queue(settings.waiting_max)
        self._free = asyncio.Semaphore(settings.in_flight_max)
        self._sends: set[asyncio.Task[None]] = set()
        self._last_of_key: dict[str, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start to send; the producer was started."""
        self._tasks = [
            asyncio.create_task(self._send_all(), name="gantry-outbox-send"),
            asyncio.create_task(self._place_all(), name="gantry-outbox-place"),
        ]

    async def close(self) -> None:
        """Send and place what waits, for `drain_s` at most."""
        try:
            async with asyncio.timeout(self._settings.drain_s):
                await self._waiting.join()
                await self._stored.join()
        except TimeoutError:
            left = self._waiting.qsize() + len(self._sends) + self._stored.qsize()
            log.warning("the outbox ends with %d messages that are not sent or not placed; a resend finds them", left)
        await cancelled([*self._tasks, *self._sends])

    def offer(self, stub: OutgoingStub) -> bool:
        """Take a stub whose transaction was committed; False when too many wait."""
        try:
            self._waiting.put_nowait(stub)
        except asyncio.QueueFull:
            self.counts.left_to_resend += 1
            return False
        return True

    async def _send_all(self) -> None:
        while True:
            stub = await self._waiting.get()
            await self._free.acquire()
            task = asyncio.create_task(self._send(stub, self._last_of_key.get(stub.key)))
            self._sends.add(task)
            if stub.key:
                self._last_of_key[stub.key] = task
            task.add_done_callback(partial(self._sent, stub))

    def _sent(self, stub: OutgoingStub, task: asyncio.Task[None]) -> None:
        self._sends.discard(task)
        if self._last_of_key.get(stub.key) is task:
            del self._last_of_key[stub.key]
        self._free.release()
        self._waiting.task_done()
        if not task.cancelled() and (error := task.exception()) is not None:
            self.counts.left_to_resend += 1
            log.error("message %s was not sent, a resend is due", stub.message_id, exc_info=error)

    async def _send(self, stub: OutgoingStub, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            result = await self._producer.send(stub.message, key=stub.key, copy=Copy(stub.message_id))
        except (GantryError, ValueError) as error:
            self.counts.left_to_resend += 1
            topic = stub.message.topic
            log.warning("message %s for %s was not sent, a resend is due: %s", stub.message_id, topic, error)
            return
        self.counts.sent += 1
        try:
            self._stored.put_nowait(place_of(result))
        except asyncio.QueueFull:
            self.counts.not_placed += 1  # the database takes no places for long

    async def _place_all(self) -> None:
        while True:
            found = [await self._stored.get()]
            if self._stored.qsize() + 1 < self._settings.places_max:
                await asyncio.sleep(self._settings.places_after_s)
            while len(found) < self._settings.places_max and not self._stored.empty():
                found.append(self._stored.get_nowait())
            try:
                await self._save(found)
                self.counts.placed += len(found)
            except Exception as error:  # noqa: BLE001  whatever the user's driver raises
                # A message without a place is sent again when it is due, if no group has confirmed it: harmless.
                self.counts.not_placed += len(found)
                log.warning("%d places were not stored: %s: %s", len(found), type(error).__name__, error)
            for _ in found:
                self._stored.task_done()


def place_of(result: SendResult) -> StoredPlace:
    """Return where a message stands that a broker has acknowledged."""
    queue = result.queue
    return StoredPlace(result.message_id, queue.topic, queue.broker_name, queue.queue_id, result.queue_offset)
