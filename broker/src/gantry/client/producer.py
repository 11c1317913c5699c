"""The producer: sends messages to brokers and returns the result of each.

    async with Producer("orders", nameserver="127.0.0.1:9876") as producer:
        result = await producer.send(Message("Orders", b"...", tags="paid", keys=("o-1",)))

`send` returns when a broker has acknowledged the message.  Until then, and within its time-out, it retries where that
may help: on another group if there is one, else after a growing, jittered pause.  Every attempt has the same message
id, so duplicates can be recognised.
    returns                the message is stored, under the policy of the broker
    RefusedError           the broker refused it finally, or until the time-out; nothing is stored
    UnreachableError       nothing was sent
    OutcomeUnknownError    an attempt was sent and not answered; the message may be stored, once or several times
    ValueError             the message is not allowed; nothing was sent
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Self

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.hooks import SendHook, Sending, around_send
from gantry.client.identity import ClientIdentity
from gantry.client.lifecycle import Lifecycle
from gantry.client.outgoing import Copy, Outgoing, prepare, prepare_batch, sharding
from gantry.client.producing.gathering import Gathering
from gantry.client.producing.sending import Sender
from gantry.client.received import ReceivedMessage
from gantry.client.requestreply import (
    DEFAULT_TTL_S,
    WAITING_MAX,
    Reply,
    Waiting,
    answer_properties,
    answer_to,
    hand_on,
    request_properties,
    ttl_s,
)
from gantry.client.requests import questions
from gantry.client.requests.question import Question
from gantry.client.requests.recall import queue_of, recall
from gantry.client.results import SendResult
from gantry.client.settings import ProducerSettings, check_group
from gantry.clock import Clock, SystemClock
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from gantry.model.message import Message, StoredMessage
from gantry.model.names import reply_topic
from gantry.model.route import MessageQueue
from gantry.wire.compression import Compression
from gantry.wire.heartbeat import Heartbeat

__all__ = [
    "Compression",
    "Copy",
    "Message",
    "MessageQueue",
    "Producer",
    "ProducerSettings",
    "Reply",
    "SendHook",
    "SendResult",
    "Sending",
]


_ONEWAYS_IN_A_ROW = 16  # after so many the loop may run other tasks


class Producer:
    """Sends messages; an asynchronous context manager, or start() and stop() once each."""

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str],
        settings: ProducerSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self._settings = settings or ProducerSettings()
        self._clock = clock or SystemClock()
        self._waiting = Waiting()
        self._session = Session(nameserver, self._heartbeat, self._waiting.serve)
        self._routes = Routes(self._session, new_topics=True)
        self._life = Lifecycle(group, self._session, self._routes)
        self._identity = ClientIdentity(self._session.nameservers[0], self._clock)
        self._oneways = 0
        gathering = Gathering(self._session, group) if self._settings.batches else None
        self._sender = Sender(self._session, self._routes, self._settings, self._identity.random, gathering)

    async def start(self) -> None:
        """Start; connections are made by the first send."""
        await self._life.start()

    async def stop(self) -> None:
        """Unregister at the brokers and close; sends that are under way fail."""
        await self._life.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._life.leave(error)

    def next_message_id(self) -> str:
        """Return a new message id, for a message that is written down before it is sent (`Copy`)."""
        return self._identity.message_ids.next()

    async def send(
        self,
        message: Message,
        *,
        key: str = "",
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        copy: Copy | None = None,
    ) -> SendResult:
        """Send one message and wait for the acknowledgement.

        Messages with the same `key` go to the same queue while the number of queues stays; `queue` selects a queue
        directly.
        The key is sent as `__SHARDINGKEY`, which a topic of type FIFO requires.
        `copy` gives the message an id that it has already.
        """
        if not self._settings.hooks:
            return await self._send(message, key, queue, timeout_s, copy)
        sending = Sending(self.group, [message])
        with around_send(self._settings.hooks, sending):
            (message,) = sending.messages
            sending.result = await self._send(message, key, queue, timeout_s, copy)
            return sending.result

    def _send(
        self, message: Message, key: str, queue: MessageQueue | None, timeout_s: float | None, copy: Copy | None
    ) -> Awaitable[SendResult]:
        outgoing = self._prepared(message, sharding(key) if key else None, copy)
        return self._sender.send(outgoing, self._sender.chooser(key, queue), self._ask, timeout_s)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        key: str = "",
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send messages of one topic, which are stored all or none, next to each other."""
        sending = Sending(self.group, list(messages))
        with around_send(self._settings.hooks, sending):
            ids, now_ms = self._identity.message_ids, self._clock.now_ms()
            outgoing = prepare_batch(sending.messages, ids, now_ms, sharding(key))
            sending.result = await self._sender.send(outgoing, self._sender.chooser(key, queue), self._ask, timeout_s)
            return sending.result

    async def send_oneway(self, message: Message, *, key: str = "", queue: MessageQueue | None = None) -> None:
        """Send without an answer and without retries; returns when the message was given to the socket.

        It waits while the broker does not read, at most `timeout_s` of the settings: then UnreachableError, and nothing
        was sent. Messages that may be lost with a connection are counted (`oneways_in_doubt`).
        """
        deadline = asyncio.get_running_loop().time() + self._settings.timeout_s
        self._oneways += 1
        if self._oneways % _ONEWAYS_IN_A_ROW == 0:
            await asyncio.sleep(0)
        sending = Sending(self.group, [message])
        with around_send(self._settings.hooks, sending):
            outgoing = self._prepare(sending, sharding(key))
            queues = await self._routes.to_write(outgoing.topic, self._settings.timeout_s)
            target = self._sender.chooser(key, queue)(queues, frozenset())
            command = questions.send(self.group, outgoing, target).command
            left_s = deadline - asyncio.get_running_loop().time()
            self._sender.flush()
            await self._session.tell(self._routes.master(target), command, left_s)

    @property
    def oneways_in_doubt(self) -> int:
        """The number of one-way messages on lost connections that the broker may not have read."""
        return self._session.oneways_in_doubt

    async def request(self, message: Message, *, key: str = "", timeout_s: float = DEFAULT_TTL_S) -> Reply:
        """Send a message and return the reply of a consumer.

        Raises the errors of `send`, and OutcomeUnknownError when no reply came in time. The reply reaches only this
        producer,
        and only while it waits.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise UnreachableError(f"{WAITING_MAX} requests wait for a reply; wait for some of them first")
        deadline = asyncio.get_running_loop().time() + timeout_s
        correlation_id = self._identity.message_ids.next()
        more = request_properties(correlation_id, self._identity.client_id, timeout_s)
        future = self._waiting.expect(correlation_id)
        try:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._meet_repliers(message.topic)
            except TimeoutError:
                raise UnreachableError(f"{message.topic}: no broker was reached within {timeout_s:g} s") from None
            sending = Sending(self.group, [message])
            with around_send(self._settings.hooks, sending):
                outgoing = self._prepare(sending, {**more, **(sharding(key) or {})})
                left_s = deadline - asyncio.get_running_loop().time()
                chooser = self._sender.chooser(key, None)
                sending.result = await self._sender.send(outgoing, chooser, self._ask, left_s)
            async with asyncio.timeout_at(deadline):
                return await future
        except TimeoutError:
            raise OutcomeUnknownError(f"{message.topic}: no reply within {timeout_s:g} s") from None
        finally:
            future.cancel()

    async def reply(
        self, request: StoredMessage | ReceivedMessage, body: bytes, *, tags: str = "", keys: str = ""
    ) -> None:
        """Answer a received request; RefusedError when its sender does not wait any more.

        ValueError for a message that is not a request.
        """
        message = answer_to(request, body, tags, keys)
        stored = request.stored if isinstance(request, ReceivedMessage) else request
        timeout_s = min(ttl_s(request), self._settings.timeout_s)
        sending = Sending(self.group, [message])
        with around_send(self._settings.hooks, sending):
            outgoing = self._prepare(sending, answer_properties(request))
            await hand_on(self._session, self._routes, self.group, outgoing, stored.broker_name, timeout_s)

    async def recall(self, handle: str) -> str:
        """Cancel a delayed message by the `recall_handle` of its result. Return its message id.

        RefusedError when it is too late, or the broker does not support it; ValueError for an invalid handle.
        """
        queue = queue_of(handle)
        await self._routes.to_write(queue.topic)
        question = recall(self.group, handle, queue)
        return await self._session.ask(self._routes.master(queue), question, self._settings.attempt_timeout_s)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic in order."""
        return list(await self._routes.to_write(topic))

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self._identity.client_id, (self.group,))

    def _prepare(self, sending: Sending, more: Mapping[str, str] | None = None) -> Outgoing:
        (message,) = sending.messages
        return self._prepared(message, more)

    def _prepared(self, message: Message, more: Mapping[str, str] | None, copy: Copy | None = None) -> Outgoing:
        settings = self._settings
        return prepare(
            message,
            self._identity.message_ids,
            self._clock.now_ms(),
            settings.compress_over_bytes,
            settings.compression,
            more,
            copy,
        )

    async def _meet_repliers(self, topic: str) -> None:
        """Connect to every broker that may pass on a reply."""
        route = await self._routes.route(topic)
        clusters = {broker.cluster for broker in route.brokers}
        routes = [route]
        for cluster in sorted(clusters):
            try:
                routes.append(await self._routes.route(reply_topic(cluster)))
            except RefusedError:
                continue  # then replies come through the brokers of the topic
        masters = {broker.master for one in routes for broker in one.brokers if broker.master is not None}
        await asyncio.gather(*(self._session.meet(master) for master in sorted(masters)), return_exceptions=True)

    def _ask(self, outgoing: Outgoing, queue: MessageQueue) -> Question[SendResult]:
        return questions.send(self.group, outgoing, queue)
