"""Sends one request in several attempts, until a broker has accepted it or a retry does not help.

The caller makes the request: a message or batch (`Producer`), or the half message of a transaction
(`TransactionProducer`), which must not be sent again once its outcome is unknown.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar, cast

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.outgoing import Outgoing
from gantry.client.producing.gathering import Gathering
from gantry.client.producing.places import SendPlaces
from gantry.client.producing.selector import Turn, by_key
from gantry.client.producing.trial import Trial
from gantry.client.requests.question import Question
from gantry.client.results import SendResult
from gantry.client.settings import ProducerSettings
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from gantry.model.route import MessageQueue

T = TypeVar("T")
Ask = Callable[[Outgoing, MessageQueue], Question[T]]
Choose = Callable[[Sequence[MessageQueue], Collection[str]], MessageQueue]


class Sender:
    """Chooses a queue for each attempt, and bounds how many sends are under way."""

    def __init__(
        self,
        session: Session,
        routes: Routes,
        settings: ProducerSettings,
        chance: random.Random,
        gathering: Gathering | None = None,
    ) -> None:
        self._gathering = gathering  # for messages that may join a batch
        self._session = session
        self._routes = routes
        self._settings = settings
        self._random = chance  # for jitter, and for the first queue
        self._turn = Turn(chance.randrange(1 << 16))
        self._places = SendPlaces(settings.in_flight_max)
        self._alone_free = settings.in_flight_max - 2  # more places are free: only one send is under way

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
        if not self._places.take():
            await self._wait_for_place(outgoing.topic, deadline)
        trial = Trial()
        try:
            while True:
                try:
                    gathered = self._gathered(outgoing, choose, trial, deadline) if trial.is_first else None
                    if gathered is not None:
                        return cast(T, await gathered)
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
            self._places.give_back()

    def flush(self) -> None:
        """Send what was gathered, before a request that leaves by itself: each queue has the order of the calls."""
        if self._gathering is not None:
            self._gathering.flush()

    def _gathered(
        self, outgoing: Outgoing, choose: Choose, trial: Trial, deadline: float
    ) -> asyncio.Future[SendResult] | None:
        """Send a message at the end of the turn, maybe together with others; None when it leaves by itself."""
        gathering = self._gathering
        # One send at a time does not wait for the end of the turn.
        if gathering is None or not outgoing.may_join or self._places.free > self._alone_free:
            return None
        route = self._routes.writable(outgoing.topic)
        if route is None:
            return None
        trial.groups = route.groups
        queue = trial.queue = choose(route.to_write, ())
        trial.current = queue.broker_name
        address = route.masters.get(queue.broker_name)
        if address is None:
            return None
        now = asyncio.get_running_loop().time()
        return gathering.post(outgoing, queue, address, now, min(deadline - now, self._settings.attempt_timeout_s))

    async def _wait_for_place(self, topic: str, deadline: float) -> None:
        try:
            await self._places.wait(deadline)
        except TimeoutError:
            text = f"{topic}: not sent: {self._settings.in_flight_max} other sends were under way until the time-out"
            raise UnreachableError(text) from None

    async def _attempt(self, outgoing: Outgoing, choose: Choose, ask: Ask[T], trial: Trial, deadline: float) -> T:
        loop = asyncio.get_running_loop()
        queues = await self._routes.to_write(outgoing.topic, deadline - loop.time())
        trial.groups = len({queue.broker_name for queue in queues})
        queue = trial.queue or choose(queues, trial.failed_groups)
        trial.queue = None
        trial.current = queue.broker_name
        timeout_s = min(deadline - loop.time(), self._settings.attempt_timeout_s)
        self.flush()
        return await self._session.ask(self._routes.master(queue), ask(outgoing, queue), timeout_s)
