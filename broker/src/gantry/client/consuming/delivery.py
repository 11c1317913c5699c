"""One life of a queue, as its messages see it: how they are finished.  All messages of the life share one object.

Another life begins when the queue's window is moved (see `intake`); calls for messages of a former one are too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gantry.client.consuming.intake import Intake
from gantry.client.consuming.redelivery import Redelivery
from gantry.client.received import Again, ReceivedMessage


class Delivery:
    """Finishes the messages of one life of a queue; `too_late` is told when a call has no effect any more."""

    __slots__ = ("_intake", "_redelivery", "_too_late", "life")

    def __init__(
        self, intake: Intake, redelivery: Redelivery, too_late: Callable[[Intake, ReceivedMessage], bool]
    ) -> None:
        self.life = intake.life
        self._intake = intake
        self._redelivery = redelivery
        self._too_late = too_late

    def finish(self, message: ReceivedMessage) -> bool:
        """Return whether the acknowledgement counts."""
        intake = self._intake
        return intake.finish(message.stored.queue_offset, self.life) or self._too_late(intake, message)

    async def again(self, message: ReceivedMessage, wish: Again) -> None:
        """Arrange that the message is delivered again."""
        if not await self._redelivery.take(self._intake, self.life, message, wish):
            self._too_late(self._intake, message)


async def ended(task: asyncio.Task[None]) -> None:
    """Wait for the end of a task, whatever it is; a caller that is cancelled leaves it running.

    `asyncio.wait` does the same for any number of tasks, at ten times the cost.
    """
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def note(_: asyncio.Task[None]) -> None:
        if not over.done():
            over.set_result(None)

    task.add_done_callback(note)
    await over
