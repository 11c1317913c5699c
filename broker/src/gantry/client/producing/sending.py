"""Sends one request in several attempts, until a broker has accepted it or a retry does not help.

The caller makes the request: a message or batch (`Producer`), or the half message of a transaction
(`TransactionProducer`), which must not be sent again once its outcome is unknown.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.outgoing import Outgoing
from gantry.client.producing.selector import Turn, by_key
from gantry.client.producing.trial import Trial
from gantry.client.requests.question import Question
from gantry.client.settings import ProducerSettings
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from gantry.model.route import MessageQueue

T = TypeVar("T")
Ask = Callable[[Outgoing, MessageQueue], Question[T]]
Choose = Callable[[Sequence[MessageQueue], frozenset[str]], MessageQueue]


class Sender:
    """Chooses a queue for each attempt, and bounds how many sends are under way."""

    def __init__(self, session: Session, routes: Routes, settings: ProducerSettings, chance: random.Random) -> None:
        self._session = session
        self._routes = routes
        self._settings = settings
        self._random = chance  # for jitter, and for the first queue
        self._turn = Turn(chance.randrange(1 << 16))
        self._places = asyncio.Semaphore(settings.in_flight_max)

    def chooser(self, key: str, queue: MessageQueue | None) -> Choose:
        """Return how to choose: this queue, else the one for the key, else the next in turn."""
        if queue is not None:
            return lambda queues, avoid: queue
        if key:
            return lambda queues, avoid: by_key(queues, key)
        return self._turn.select

    async def send(
        self,
        outgoing: Outgoing,
        choose: Choose,
        ask: Ask[T],
        timeout_s: float | None = None,
        *,
        again_when_unknown: bool = True,
    ) -> T:
        """Return the answer of the broker that accepted it; the errors of `Producer.send` when none did in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._settings.timeout_s if timeout_s is None else timeout_s)
        if self._places.locked():
            await self._wait_for_place(outgoing.topic, deadline)
        else:
            await self._places.acquire()
        try:
            trial = Trial()
            while True:
                try:
                    return await self._attempt(outgoing, choose, ask, trial, deadline)
                except (RefusedError, UnreachableError, OutcomeUnknownError) as error:
                    trial.failed(error)
                    self._routes.doubt(outgoing.topic)
                    pause_s = trial.pause_s() * self._random.uniform(0.5, 1.0)
                    is_last = trial.unknown is not None and not again_when_unknown
                    if is_last or not trial.may_go_on or loop.time() + pause_s >= deadline:
                        verdict = trial.verdict(error)
                        if verdict is error:
                            raise
                        raise verdict from error
                await asyncio.sleep(pause_s)
        finally:
            self._places.release()

    async def _wait_for_place(self, topic: str, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
        except TimeoutError:
            text = f"{topic}: not sent: {self._settings.in_flight_max} other sends were under way until the time-out"
            raise UnreachableError(text) from None

    async def _attempt(self, outgoing: Outgoing, choose: Choose, ask: Ask[T], trial: Trial, deadline: float) -> T:
        loop = asyncio.get_running_loop()
        queues = await self._routes.to_write(outgoing.topic, deadline - loop.time())
        trial.groups = len({queue.broker_name for queue in queues})
        queue = choose(queues, frozenset(trial.failed_groups))
        trial.current = queue.broker_name
        timeout_s = min(deadline - loop.time(), self._settings.attempt_timeout_s)
        return await self._session.ask(self._routes.master(queue), ask(outgoing, queue), timeout_s)
