"""Where a consumer's messages come from: queues that it shares with its group, or pops.

    begin        starts the tasks of the source
    next         returns messages until `wake` was called at the end of the consumer's life
    stop_taking  no more messages are requested, and none is handed out again
    idle         returns when no message is in work
    end          settles or commits what is finished, and leaves the rest to other members

`SourceParts` is what every source of one consumer shares with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Protocol

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.consuming.broker_requests import QueueInfo
from gantry.client.received import ReceivedMessage
from gantry.client.settings import ConsumerSettings
from gantry.client.tallies import Tallies
from gantry.clock import Clock
from gantry.model.route import MessageQueue
from gantry.model.subscription import Subscription


@dataclass(frozen=True, slots=True)
class SourceParts:
    """What a consumer gives to its source."""

    group: str
    client_id: str
    subscriptions: tuple[Subscription, ...]
    settings: ConsumerSettings
    session: Session
    routes: Routes
    # Starts a task whose failure ends the consumer.
    spawn: Callable[[Coroutine[object, object, None], str], asyncio.Task[None]]
    is_over: Callable[[], bool]  # whether the consumer's life is over
    tallies: Tallies
    clock: Clock


class MessageSource(Protocol):
    """Gives a consumer its messages; `queueshare.QueueShare` and `popsource.PopSource`."""

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now, without those of the retry topic."""
        ...

    def infos(self) -> list[QueueInfo]:
        """Return the state of each queue, for tools."""
        ...

    def begin(self) -> None:
        """Start the tasks."""
        ...

    async def wait_until_begun(self, within_s: float) -> None:
        """Return when the first queues have begun, at the latest after `within_s`."""
        ...

    def wake(self) -> None:
        """Let every call of `next` return None; the consumer's life is over."""
        ...

    async def next(self) -> ReceivedMessage | None:
        """Return the next message that this member still has; None when the consumer has ended."""
        ...

    async def stop_taking(self) -> None:
        """Request no more messages."""
        ...

    async def idle(self) -> None:
        """Return when no message is in work."""
        ...

    async def end(self) -> None:
        """Settle what is finished; later calls for messages have no effect."""
        ...

    async def commit(self) -> None:
        """Commit the progress now."""
        ...

    def move(self, targets: Mapping[MessageQueue, int]) -> None:
        """Continue at the offsets of a reset."""
        ...

    def members_changed(self) -> None:
        """Note that the group's members may have changed."""
        ...

    def broker_returned(self) -> None:
        """Note that a broker is reachable again after its connection was lost."""
        ...
