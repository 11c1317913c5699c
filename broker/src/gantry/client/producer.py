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
from collections.abc import Sequence
from typing import Self

from gantry.client import questions
from gantry.client.identity import Identity
from gantry.client.outgoing import Outgoing, prepare, prepare_batch
from gantry.client.question import Question
from gantry.client.results import SendResult
from gantry.client.routes import Routes
from gantry.client.sending import Sender
from gantry.client.session import Session
from gantry.client.settings import ProducerSettings, check_group
from gantry.clock import Clock, SystemClock
from gantry.model.message import Message
from gantry.model.route import MessageQueue
from gantry.wire.heartbeat import Heartbeat

__all__ = ["Message", "MessageQueue", "Producer", "ProducerSettings", "SendResult"]

_GOODBYE_S = 1.0


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
        self._session = Session(nameserver, self._heartbeat)
        self._routes = Routes(self._session, new_topics=True)
        self._identity = Identity(self._session.nameservers[0], self._clock)
        self._sender = Sender(self._session, self._routes, self._settings, self._identity.random)

    async def start(self) -> None:
        """Begin; connections are made by the first send."""
        await self._session.start()
        await self._routes.start()

    async def stop(self) -> None:
        """1. say goodbye to the brokers, 2. close; sends that still run fail."""
        goodbye = questions.unregister(self._identity.client_id, self.group, None)
        asked = [self._session.ask(address, goodbye, _GOODBYE_S) for address in self._session.brokers()]
        await asyncio.gather(*asked, return_exceptions=True)
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
        """
        outgoing = prepare(
            message, self._identity.message_ids, self._clock.now_ms(), self._settings.compress_over_bytes
        )
        return await self._sender.send(outgoing, self._sender.chooser(key, queue), self._ask, timeout_s)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        key: str = "",
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send messages of one topic that are stored together, next to each other, or not at all."""
        outgoing = prepare_batch(messages, self._identity.message_ids, self._clock.now_ms())
        return await self._sender.send(outgoing, self._sender.chooser(key, queue), self._ask, timeout_s)

    async def send_oneway(self, message: Message, *, key: str = "", queue: MessageQueue | None = None) -> None:
        """Send without an answer and without retries: returns when the message is handed to the socket."""
        outgoing = prepare(
            message, self._identity.message_ids, self._clock.now_ms(), self._settings.compress_over_bytes
        )
        target = self._sender.chooser(key, queue)(await self._routes.to_write(message.topic), frozenset())
        command = questions.send(self.group, outgoing, target).command
        await self._session.tell(self._routes.master(target), command)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that may be written to, in their order."""
        return list(await self._routes.to_write(topic))

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self._identity.client_id, (self.group,))

    def _ask(self, outgoing: Outgoing, queue: MessageQueue) -> Question[SendResult]:
        return questions.send(self.group, outgoing, queue)
