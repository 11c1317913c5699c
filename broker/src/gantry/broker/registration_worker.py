"""Keeps one name server informed of this broker; nothing that it does waits for another name server.

A whole registration goes out at the start, every 30 s, when a topic was deleted or the broker stands as another one,
and at once when the connection or a single topic was lost.  One that fails is tried again after a second, so that a
name server that restarted knows this broker soon.  After one that was sent, and refused or not answered in time, the
pause is longer and the next one is given more time: a name server that has many brokers with many topics to read would
otherwise get what it has not read yet once more, for ever.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from gantry.broker.complaints import Complaints
from gantry.broker.registration_body import RegistrationSource
from gantry.errors import GantryError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.leaves.frames import Command
from gantry.model.topic import TopicConfig
from gantry.wire.codes import ResponseCode

_GOODBYE_S = 1.0
_AGAIN_S = 1.0
_DOUBLINGS_MAX = 3
_TIMEOUT_MAX_S = 9.0  # the client closes a connection on which it heard nothing for 10 s
_TOPICS_AT_ONCE = 64
_SINGLE_TOPICS_VERSION = 413  # V5_0_0: RocketMQ's name server before it does not answer 217


class Invoker(Protocol):
    """The used part of `transport.client.RemotingClient`."""

    async def invoke(self, address: str, command: Command, timeout_s: float) -> Command:
        """Send a request and return its answer."""
        ...


@dataclass(slots=True)
class RegistrationContext:
    """What the workers of all name servers share."""

    client: Invoker
    source: RegistrationSource
    complaints: Complaints
    period_s: float = 30.0
    timeout_s: float = 3.0
    round_over: asyncio.Condition = field(default_factory=asyncio.Condition)
    master_address: str = ""  # of the group's master, from the last answer to a slave that names one
    master_ha: str = ""


class RegistrationWorker:
    """The registration at one name server; run() is a task of its own."""

    def __init__(self, address: str, context: RegistrationContext) -> None:
        self.address = address
        self.is_registered = False
        self.has_failed = False  # the last whole registration
        self.changes_sent = 0  # how many of the changes so far were carried by its rounds
        self._context = context
        self._changes = 0
        self._changed_topics: dict[str, None] = {}
        self._is_whole_due = False
        self._takes_whole_only = False
        self._read_in_vain = 0  # whole registrations in a row that were sent, and were refused or not answered
        self._woken = asyncio.Event()

    def register_whole_soon(self) -> None:
        """Note a change that only the whole table tells."""
        self._changes += 1
        self._is_whole_due = True
        self._woken.set()

    def register_topic_soon(self, topic: str) -> None:
        """Note that a topic was created or changed."""
        self._changes += 1
        self._changed_topics[topic] = None
        self._woken.set()

    def note_lost_connection(self) -> None:
        """Note that the connection ended, and with it the registration."""
        self._takes_whole_only = False  # it may be another name server by now
        if self.is_registered:
            self._register_again()

    async def run(self) -> None:
        """Register at once, then every period and after every change, until cancelled."""
        loop = asyncio.get_running_loop()
        not_before_s = 0.0  # for a registration that was lost just after it was made
        while True:
            due_s = loop.time() + self._context.period_s
            await self.register_whole()
            if self.has_failed:
                due_s = loop.time() + _AGAIN_S * (1 << min(self._read_in_vain, _DOUBLINGS_MAX))
            while not self._is_whole_due and (left_s := due_s - loop.time()) > 0:
                if self._changed_topics and self.is_registered:
                    await self._register_topics()
                else:
                    await self._sleep(left_s)
            if not self.is_registered and not self.has_failed:
                await asyncio.sleep(max(0.0, not_before_s - loop.time()))
                not_before_s = loop.time() + _AGAIN_S

    async def register_whole(self) -> None:
        """Send the whole table once."""
        changes, self._is_whole_due = self._changes, False
        self._changed_topics.clear()
        source = self._context.source
        try:
            answer = await self._ask(await source.whole(), self._timeout())
        except GantryError as error:
            self._read_in_vain = 0 if isinstance(error, UnreachableError) else self._read_in_vain + 1
            self.is_registered, self.has_failed = False, True
            self._complain(f"did not take the registration: {error}")
        else:
            self._read_in_vain = 0
            self.is_registered, self.has_failed = True, False
            self._takes_whole_only = self._takes_whole_only or answer.version < _SINGLE_TOPICS_VERSION
            if not source.is_master and answer.ext.get("masterAddr"):
                self._context.master_address = answer.ext["masterAddr"]
                self._context.master_ha = answer.ext.get("haServerAddr", "")
        await self._note_sent(changes)

    async def unregister(self) -> None:
        """Say goodbye, so that clients go elsewhere at once."""
        if not self.is_registered:
            return
        try:
            await self._context.client.invoke(self.address, self._context.source.goodbye(), _GOODBYE_S)
        except GantryError as error:
            self._complain(f"could not unregister this broker: {error}")
        self.is_registered = False

    async def _register_topics(self) -> None:
        """Register the changed topics by themselves; what is left when that fails, the whole table has."""
        changes, names = self._changes, list(self._changed_topics)
        self._changed_topics.clear()
        if not self._context.source.is_master:
            names.clear()  # the whole table of a slave is not read either
        for at in range(0, len(names), _TOPICS_AT_ONCE):
            if self._takes_whole_only or self._is_whole_due:
                break
            some = [self._context.source.get(name) for name in names[at : at + _TOPICS_AT_ONCE]]
            await asyncio.gather(*[self._register_topic(topic) for topic in some if topic is not None])
        self._is_whole_due = self._is_whole_due or (self._takes_whole_only and bool(names))
        if not self._is_whole_due:
            await self._note_sent(changes)

    async def _register_topic(self, topic: TopicConfig) -> None:
        if not self._context.source.is_master:
            return  # since the round began; and Apache's name server takes single topics from anybody
        try:
            await self._ask(self._context.source.single(topic), self._context.timeout_s)
        except GantryError as error:
            if isinstance(error, RefusedError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self._takes_whole_only = True
                return
            self._takes_whole_only = self._takes_whole_only or isinstance(error, OutcomeUnknownError)
            self._register_again()
            self._complain(f"did not take a topic: {error}")

    def _register_again(self) -> None:
        self.is_registered = False
        self._is_whole_due = True
        self._woken.set()

    async def _ask(self, command: Command, timeout_s: float) -> Command:
        answer = await self._context.client.invoke(self.address, command, timeout_s)
        if answer.code:
            raise RefusedError(answer.code, answer.remark or "no remark")
        return answer

    def _timeout(self) -> float:
        """Seconds for a whole registration: more after one that was not answered."""
        first_s = self._context.timeout_s
        return max(first_s, min(first_s * (1 << min(self._read_in_vain, _DOUBLINGS_MAX)), _TIMEOUT_MAX_S))

    def _complain(self, what: str) -> None:
        self._context.complaints.say(self.address, f"name server {self.address} {what}")

    async def _note_sent(self, changes: int) -> None:
        async with self._context.round_over:
            self.changes_sent = changes
            self._context.round_over.notify_all()

    async def _sleep(self, within_s: float) -> None:
        """Wait for a change, a lost connection or the end of the time."""
        self._woken.clear()
        try:
            # Not wait_for: it swallows a cancellation that comes together with the event (Python 3.11).
            async with asyncio.timeout(within_s):
                await self._woken.wait()
        except TimeoutError:
            pass
