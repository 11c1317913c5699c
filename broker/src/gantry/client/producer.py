"""The producer: messages to brokers, with an answer for each.

    async with Producer("orders", nameserver="127.0.0.1:9876") as producer:
        result = await producer.send(Message("Orders", b"...", tags="paid", keys=("o-1",)))

`send` returns when a broker has acknowledged the message.  Until then, and until its time is up, it
tries again where a retry may help: on another group if there is one, else after a growing, jittered
pause.  Every attempt carries the same message id, so a message that was stored twice can be told.

    returns                the message is kept, under the policy of the broker
    RefusedError           a broker said no for good, or until the time was up; nothing is stored
    UnreachableError       nothing was sent
    OutcomeUnknownError    some attempt was sent and never answered; it may be stored, once or more often
    ValueError             the message is not allowed; nothing was sent
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Self

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.hooks import SendHook, Sending, around_send
from gantry.client.identity import Identity
from gantry.client.life import to_the_end
from gantry.client.outgoing import Outgoing, prepare, prepare_batch, sharding
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
    "Message",
    "MessageQueue",
    "Producer",
    "ProducerSettings",
    "Reply",
    "SendHook",
    "SendResult",
    "Sending",
]


_ONEWAYS_IN_A_ROW = 16  # then the loop has a turn


class Producer:
    """Sends; an asynchronous context manager, or start() and stop() once each."""

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
        self._identity = Identity(self._session.nameservers[0], self._clock)
        self._oneways = 0
        self._sender = Sender(self._session, self._routes, self._settings, self._identity.random)

    async def start(self) -> None:
        """Begin; connections are made by the first send."""
        await self._session.start()
        await self._routes.start()

    async def stop(self) -> None:
        """1. say goodbye to the brokers, 2. close; sends that still run fail."""
        try:
            await self._session.say_goodbye(self._identity.client_id, producers=self.group)
        finally:
            await to_the_end(self._close())  # also when this call is cancelled

    async def _close(self) -> None:
        await self._routes.close()
        await self._session.close()

    async def __aenter__(self) -> Self:
        """start()"""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """stop()"""
        await self.stop()

    async def send(
        self, message: Message, *, key: str = "", queue: MessageQueue | None = None, timeout_s: float | None = None
    ) -> SendResult:
        """Send one message and await the acknowledgement.

        Messages with the same `key` go to the same queue while the number of queues stays; `queue` names one outright.
        The key goes along as `__SHARDINGKEY`, by which a topic of type FIFO takes the message.
        """
        sending = Sending(self.group, [message])
        with around_send(self._settings.hooks, sending):
            outgoing = self._prepare(sending, sharding(key))
            sending.result = await self._sender.send(outgoing, self._sender.chooser(key, queue), self._ask, timeout_s)
            return sending.result

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        key: str = "",
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send messages of one topic that are stored together, next to each other, or not at all."""
        sending = Sending(self.group, list(messages))
        with around_send(self._settings.hooks, sending):
            ids, now_ms = self._identity.message_ids, self._clock.now_ms()
            outgoing = prepare_batch(sending.messages, ids, now_ms, sharding(key))
            sending.result = await self._sender.send(outgoing, self._sender.chooser(key, queue), self._ask, timeout_s)
            return sending.result

    async def send_oneway(self, message: Message, *, key: str = "", queue: MessageQueue | None = None) -> None:
        """Send without an answer and without retries: returns when the message is handed to the socket.

        It waits while a broker does not take what it was sent, `timeout_s` of the settings at most: then it is an
        UnreachableError, and nothing was sent.  What was handed over and may be lost with a connection is counted
        (`oneways_in_doubt`).
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
            await self._session.tell(self._routes.master(target), command, left_s)

    @property
    def oneways_in_doubt(self) -> int:
        """How many one-way messages left on connections that were lost before the broker was seen to read them."""
        return self._session.oneways_in_doubt

    async def request(self, message: Message, *, key: str = "", timeout_s: float = DEFAULT_TTL_S) -> Reply:
        """Send a message and await the reply of anyone who consumes it.

        What `send` raises while it is sent; OutcomeUnknownError when it was sent and no reply came in time.  The reply
        comes to this producer only, and only while it waits.
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
                raise UnreachableError(f"{message.topic}: no broker was met within {timeout_s:g} s") from None
            sending = Sending(self.group, [message])
            with around_send(self._settings.hooks, sending):
                outgoing = self._prepare(sending, {**more, **sharding(key)})
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
        """Answer a request that was received; RefusedError when the one who asked does not wait any more.

        ValueError for a message that is no request.
        """
        message = answer_to(request, body, tags, keys)
        stored = request.stored if isinstance(request, ReceivedMessage) else request
        timeout_s = min(ttl_s(request), self._settings.timeout_s)
        sending = Sending(self.group, [message])
        with around_send(self._settings.hooks, sending):
            outgoing = self._prepare(sending, answer_properties(request))
            await hand_on(self._session, self._routes, self.group, outgoing, stored.broker_name, timeout_s)

    async def recall(self, handle: str) -> str:
        """Take a delayed message back by the `recall_handle` of its result; gives back its id.

        RefusedError when it is too late, or the broker cannot; ValueError when this is no handle.
        """
        queue = queue_of(handle)
        await self._routes.to_write(queue.topic)
        question = recall(self.group, handle, queue)
        return await self._session.ask(self._routes.master(queue), question, self._settings.attempt_timeout_s)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that may be written to, in their order."""
        return list(await self._routes.to_write(topic))

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self._identity.client_id, (self.group,))

    def _prepare(self, sending: Sending, more: Mapping[str, str] | None = None) -> Outgoing:
        (message,) = sending.messages
        settings = self._settings
        return prepare(
            message,
            self._identity.message_ids,
            self._clock.now_ms(),
            settings.compress_over_bytes,
            settings.compression,
            more,
        )

    async def _meet_repliers(self, topic: str) -> None:
        """Be known to every broker that a reply may come through."""
        route = await self._routes.route(topic)
        clusters = {broker.cluster for broker in route.brokers}
        routes = [route]
        for cluster in sorted(clusters):
            try:
                routes.append(await self._routes.route(reply_topic(cluster)))
            except RefusedError:
                continue  # replies come through the brokers of the topic, then
        masters = {broker.master for one in routes for broker in one.brokers if broker.master is not None}
        await asyncio.gather(*(self._session.meet(master) for master in sorted(masters)), return_exceptions=True)

    def _ask(self, outgoing: Outgoing, queue: MessageQueue) -> Question[SendResult]:
        return questions.send(self.group, outgoing, queue)
