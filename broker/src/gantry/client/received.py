"""A received message: the stored message, and the calls that finish it.

        ack        it is finished, progress may pass it
        retry      deliver it again later, to this member or another
        give_up    do not deliver it again, keep it as a dead letter of the group

Until the broker has accepted one of these, the group's progress in the queue stays before the message, so it is
delivered again after a crash.  A message for which none is called stops the progress of its queue for as long as the
consumer runs.

After the queue has moved to another member, or the group was reset, it is too late for these calls: the message is
delivered again, `ack` returns False, and the log says so.  After the consumer has stopped they raise ClosedError.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from gantry.model.message import StoredMessage
from gantry.model.route import MessageQueue

LEVEL_DEAD = -1


class Again(NamedTuple):
    """How a message is to be delivered again: after a delay level, after some seconds, or as the broker decides."""

    level: int = 0
    after_s: float | None = None


class ReceivedMessage:
    """One delivery of a message; `attempt` counts from 1."""

    __slots__ = ("_again", "_finish", "attempt", "is_acked", "is_over", "queue", "stored", "wants_again")

    def __init__(
        self,
        stored: StoredMessage,
        queue: MessageQueue,
        finish: Callable[[ReceivedMessage], bool],
        again: Callable[[ReceivedMessage, Again], Awaitable[None]],
    ) -> None:
        self.stored = stored
        self.queue = queue
        self.attempt = 1 + stored.reconsume_times
        self.wants_again = False  # retry() or give_up() was called
        self.is_acked = False
        self.is_over = False  # acked or given back: later calls have no effect
        self._finish = finish
        self._again = again

    def following(self) -> ReceivedMessage:
        """Return the same message for another delivery by this consumer, with its own state."""
        found = ReceivedMessage(self.stored, self.queue, self._finish, self._again)
        found.attempt = self.attempt + 1
        return found

    @property
    def topic(self) -> str:
        """The topic that it was sent to, also when it comes through the group's retry topic."""
        return self.stored.topic

    @property
    def reconsume_times(self) -> int:
        """How often the broker has delivered it again; `attempt` also counts the first delivery and local retries."""
        return self.stored.reconsume_times

    @property
    def body(self) -> bytes:
        """The body as the producer sent it, decompressed."""
        return self.stored.body

    @property
    def decode_error(self) -> str:
        """Why `body` holds the stored bytes instead of the sent ones; empty when it was decoded."""
        return self.stored.decode_error

    @property
    def tags(self) -> str:
        """Its tag; empty when it has none."""
        return self.stored.tags

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys it can be found by."""
        return self.stored.keys

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, RocketMQ's own ones included."""
        return self.stored.properties

    @property
    def message_id(self) -> str:
        """The id that the producer gave it; every copy has the same, so duplicates can be recognised."""
        return self.stored.message_id

    @property
    def queue_offset(self) -> int:
        """Its offset in its queue."""
        return self.stored.queue_offset

    async def ack(self) -> bool:
        """Finish the message; a second call changes nothing.

        Return False when it is delivered again even so: the call was too late, or `retry` or `give_up` was called
        before.
        """
        if not self.is_over:
            self.is_acked = self.is_over = self._finish(self)
        return self.is_acked

    async def retry(self, after_s: float | None = None, *, level: int = 0) -> None:
        """Have it delivered again, after at least so many seconds or after a delay level (1 to 18) of the broker.

        With neither, the delay grows with the attempts, from 10 s on. Returns when the broker has accepted it, or when
        this
        consumer keeps it for a local retry.
        """
        if level < 0 or (after_s is not None and (level or after_s < 0)):
            raise ValueError(f"after_s {after_s}, level {level}: expected one of them, and not below 0")
        self.wants_again = True
        await self._again(self, Again(level, after_s))

    async def give_up(self) -> None:
        """Make it a dead letter of the group at once; `gantry dlq` shows and replays those."""
        self.wants_again = True
        await self._again(self, Again(LEVEL_DEAD))

    def __repr__(self) -> str:
        return f"ReceivedMessage({self.topic}, {self.queue.broker_name}/{self.queue.queue_id}, {self.queue_offset})"
