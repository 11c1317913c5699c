"""The consumer: messages of a group's topics, shared among the group's members.

    async with Consumer("billing", nameserver="10.0.0.1:9876", subscription={"Orders": "paid || refunded"}) as consumer:
        async for message in consumer:
            ...
            await message.ack()

or with a listener, called by up to `concurrency` tasks at a time; its return acks, its exception retries:

    async with Consumer("billing", nameserver=..., subscription=..., listener=handle) as consumer:
        await consumer.wait()

Every message is delivered at least once.  Progress is committed with every pull, every 5 s, when a queue goes to
another member, and at stop; it never passes an unfinished message.  Duplicates have the same message id.  They occur
for messages that were in work at a crash, or took too long when their queue moved to another member.

With `mode="pop"` the group's members share messages and not queues (`consuming.popsource`); the rest is the same.

A failed message is sent back to its broker and delivered again later, to any member.  After the last attempt it becomes
a dead letter of the group (see `redelivery`).  The group's retry topic is subscribed to automatically; its messages are
delivered with the topic that they were sent to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.consuming.broker_requests import BrokerRequests, Description
from gantry.client.consuming.delivery import ended
from gantry.client.consuming.direct import DirectConsumption
from gantry.client.consuming.popsource import PopSource
from gantry.client.consuming.queueshare import QueueShare
from gantry.client.consuming.source import MessageSource, SourceParts
from gantry.client.consuming.subscribing import check_filters
from gantry.client.filters import Filter, Sql, subscriptions_of
from gantry.client.hooks import called
from gantry.client.identity import ClientIdentity
from gantry.client.lifecycle import Lifecycle
from gantry.client.received import ReceivedMessage
from gantry.client.settings import ConsumerSettings, StartFrom
from gantry.client.tallies import Tallies
from gantry.clock import Clock, SystemClock
from gantry.errors import ConfigError
from gantry.model.route import MessageQueue
from gantry.model.subscription import BROADCASTING, CLUSTERING, CONSUME_PASSIVELY, CONSUME_POP
from gantry.transport.tasks import Tasks
from gantry.wire.heartbeat import ConsumerData, Heartbeat

_BEGUN_S = 5.0  # a start does not wait longer for its first queues

__all__ = ["Consumer", "ConsumerSettings", "Listener", "ReceivedMessage", "Sql", "StartFrom"]

Listener = Callable[[ReceivedMessage], Awaitable[None]]

log = logging.getLogger(__name__)

MODES = ("pull", "pop")


class Consumer:
    """A member of a group; an asynchronous context manager, or start() and stop() once each."""

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str],
        subscription: Mapping[str, Filter],
        listener: Listener | None = None,
        settings: ConsumerSettings | None = None,
        clock: Clock | None = None,
        mode: str = "pull",
    ) -> None:
        self.group = group
        self.settings = settings or ConsumerSettings()
        self._clock = clock or SystemClock()
        is_pop = mode == "pop"
        if mode not in MODES or (is_pop and self.settings.broadcast):
            hint = "; a group that pops shares every message" if self.settings.broadcast else ""
            raise ConfigError(f"mode is {mode!r}, broadcast {self.settings.broadcast}, expected one of {MODES}{hint}")
        self._consume_type = CONSUME_POP if is_pop else CONSUME_PASSIVELY
        self._subscriptions = subscriptions_of(
            group, subscription, self._clock.now_ms(), with_retries=not self.settings.broadcast
        )
        self._listener = listener
        self._tallies = Tallies(self._clock)
        direct = None if listener is None else DirectConsumption(group, listener, self.settings.hooks, False)
        tasks = Tasks()
        self._broker_requests = BrokerRequests(
            group, lambda: self._source.members_changed(), lambda targets: self._source.move(targets),
            self._describe, direct, tasks,
        )  # fmt: skip
        timeout_s = self.settings.request_timeout_s
        self._session = Session(
            nameserver, self._heartbeat, self._broker_requests.serve, lambda: self._source.broker_returned(), timeout_s
        )
        self._routes = Routes(self._session)
        self._started_ms = self._clock.now_ms()
        self._identity = ClientIdentity(self._session.nameservers[0], self._clock)
        self._life = Lifecycle(
            group, self._session, self._routes, tasks,
            begin=self._begin_work, finish=self._finish_work, wake=lambda: self._source.wake(),
        )  # fmt: skip
        parts = SourceParts(
            group, self.client_id, self._subscriptions, self.settings, self._session, self._routes,
            self._life.spawn, lambda: self._life.is_over, self._tallies, self._clock,
        )  # fmt: skip
        self._source: MessageSource = PopSource(parts) if is_pop else QueueShare(parts)
        self._workers: list[asyncio.Task[None]] = []
        self._iterating: set[asyncio.Task[Any]] = set()  # tasks that may have unfinished messages

    @property
    def client_id(self) -> str:
        """The id of this member for brokers and other members."""
        return self._identity.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now, without those of the retry topic."""
        return self._source.queues

    async def start(self) -> None:
        """Connect, start to commit regularly, start listeners, and begin to share out and pull queues.

        Returns when the first queues have begun, at the latest after 5 s: what is sent from then on is received, also
        by a new group that begins at the end.
        """
        await self._life.start()

    async def _begin_work(self) -> None:
        await check_filters(self._session, self._routes, self.group, self.client_id, self._subscriptions)
        if self._listener is not None:
            count = self.settings.concurrency
            self._workers = [self._life.spawn(self._work(self._listener), f"gantry-listener-{n}") for n in range(count)]
        self._source.begin()
        await self._source.wait_until_begun(_BEGUN_S)

    async def stop(self) -> None:
        """Stop pulling, wait for messages in work, commit, unregister, and close.

        A cancelled call closes the consumer at once, because it would otherwise keep its queues.
        """
        await self._life.stop()

    async def _finish_work(self) -> None:
        await self._source.stop_taking()
        if self._workers:
            await asyncio.wait(self._workers, timeout=self.settings.stop_timeout_s)
        await self._life.tasks.close()  # also listeners
        await self._let_go()
        await self._source.end()

    async def _let_go(self) -> None:
        """Wait for unfinished messages of iterating tasks, but not for those of the task that called stop()."""
        others: set[asyncio.Future[Any]] = {task for task in self._iterating if task is not asyncio.current_task()}
        if not others:
            return
        idle: asyncio.Future[Any] = asyncio.ensure_future(self._source.idle())
        try:
            async with asyncio.timeout(self.settings.stop_timeout_s):
                while others and not idle.done():
                    done, _ = await asyncio.wait({idle, *others}, return_when=asyncio.FIRST_COMPLETED)
                    others -= done
        except TimeoutError:
            log.warning("%s: stopped with messages in hand after %g s", self.group, self.settings.stop_timeout_s)
        finally:
            idle.cancel()
            await asyncio.wait([idle])

    async def wait(self) -> None:
        """Wait until stop() was called; raises the error that ended the consumer, if there was one."""
        await self._life.wait()

    async def commit(self) -> None:
        """Commit the progress now; this also happens every few seconds."""
        await self._source.commit()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Stop; raises the error that ended the consumer, if there was one."""
        await self._life.leave(error)

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Return the consumer; the iteration ends at stop()."""
        assert self._listener is None, "messages go to the listener"
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message of any queue."""
        task = asyncio.current_task()
        if task is not None and task not in self._iterating:
            self._iterating = {task, *(one for one in self._iterating if not one.done())}
        found = await self._source.next()
        if found is None:
            await self.wait()
            raise StopAsyncIteration
        return found

    # Work

    async def _work(self, listener: Listener) -> None:
        while True:
            message = await self._source.next()
            if message is None:
                return
            if message.decode_error:
                # Another member may be able to decode it; after the last attempt it is a dead letter.  Members that
                # broadcast get no message again.
                await (message.ack() if self.settings.broadcast else message.retry())
                continue
            # A separate task: an exception of the listener is a value here, and a cancelled worker leaves it running.
            call = called(listener, message, self.group, self.settings.hooks, self._tallies)
            task = self._life.tasks.own(asyncio.create_task(call))
            await ended(task)
            if task.cancelled() or task.exception() is not None:
                log.error("%r: the listener failed", message, exc_info=None if task.cancelled() else task.exception())
                await message.retry()
            else:
                await message.ack()

    # Brokers

    def _heartbeat(self) -> Heartbeat:
        model = BROADCASTING if self.settings.broadcast else CLUSTERING
        data = ConsumerData(
            self.group,
            self._subscriptions,
            consume_type=self._consume_type,
            message_model=model,
            consume_from_where=self.settings.start_from.value,
        )
        return Heartbeat(self.client_id, consumers=(data,))

    def _describe(self) -> Description:
        settings, queues = self.settings, self._source.infos()
        nameserver = ";".join(self._session.nameservers)
        about = nameserver, self._started_ms, settings.concurrency, False, self._subscriptions, queues
        return Description(*about, self._tallies.to_json())
