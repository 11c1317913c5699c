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
from collections.abc import Callable, Sequence
from typing import Self

from gantry.client import questions
from gantry.client.identity import Identity
from gantry.client.outgoing import Outgoing, prepare, prepare_batch
from gantry.client.results import SendResult
from gantry.client.routes import Routes
from gantry.client.selector import Turn, by_key
from gantry.client.session import Session
from gantry.client.settings import ProducerSettings, check_group
from gantry.client.trial import Trial
from gantry.clock import Clock, SystemClock
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from gantry.model.message import Message
from gantry.model.route import MessageQueue
from gantry.wire.heartbeat import Heartbeat

__all__ = ["Message", "MessageQueue", "Producer", "ProducerSettings", "SendResult"]

Choose = Callable[[Sequence[MessageQueue], frozenset[str]], MessageQueue]

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
        self._turn = Turn(self._identity.random.randrange(1 << 16))
        self._places = asyncio.Semaphore(self._settings.in_flight_max)

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
        return await self._send(outgoing, self._chooser(key, queue), timeout_s)

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
        return await self._send(outgoing, self._chooser(key, queue), timeout_s)

    async def send_oneway(self, message: Message, *, key: str = "", queue: MessageQueue | None = None) -> None:
        """Send without an answer and without retries: returns when the message is handed to the socket."""
        outgoing = prepare(
            message, self._identity.message_ids, self._clock.now_ms(), self._settings.compress_over_bytes
        )
        target = self._chooser(key, queue)(await self._routes.to_write(message.topic), frozenset())
        command = questions.send(self.group, outgoing, target).command
        await self._session.tell(self._routes.master(target), command)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that may be written to, in their order."""
        return list(await self._routes.to_write(topic))

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self._identity.client_id, (self.group,))

    def _chooser(self, key: str, queue: MessageQueue | None) -> Choose:
        if queue is not None:
            return lambda queues, avoid: queue
        if key:
            return lambda queues, avoid: by_key(queues, key)
        return self._turn.select

    async def _send(self, outgoing: Outgoing, choose: Choose, timeout_s: float | None) -> SendResult:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._settings.timeout_s if timeout_s is None else timeout_s)
        async with self._places:
            trial = Trial()
            while True:
                left_s = deadline - loop.time()
                try:
                    return await self._attempt(outgoing, choose, trial, max(left_s, 0.001))
                except (RefusedError, UnreachableError, OutcomeUnknownError) as error:
                    trial.failed(error)
                    self._routes.doubt(outgoing.topic)
                    pause_s = trial.pause_s() * self._identity.random.uniform(0.5, 1.0)
                    if not trial.may_go_on or loop.time() + pause_s >= deadline:
                        if trial.unknown is None:
                            raise
                        raise trial.unknown from error  # an unknown outcome outweighs whatever came later
                await asyncio.sleep(pause_s)

    async def _attempt(self, outgoing: Outgoing, choose: Choose, trial: Trial, left_s: float) -> SendResult:
        queues = await self._routes.to_write(outgoing.topic)
        trial.groups = len({queue.broker_name for queue in queues})
        queue = choose(queues, frozenset(trial.failed_groups))
        trial.current = queue.broker_name
        question = questions.send(self.group, outgoing, queue)
        timeout_s = min(left_s, self._settings.attempt_timeout_s)
        return await self._session.ask(self._routes.master(queue), question, timeout_s)
