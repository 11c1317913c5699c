"""A message as a consumer hands it out: the stored message, and the ways to be done with it.

`ack` means: finished, progress may pass it.  `retry` means: bring it again later, to this member or another;
`give_up` means: never again, keep it as a dead letter of the group.  Until the broker has taken it, the group's
progress in its queue stays before it, so a crash brings it back, never loses it.  A message for which none of them is
called holds up the progress of its queue for as long as the consumer runs.

Once a queue has gone to another member of the group, or the group was reset, it is too late for all of them: the
message comes again, `ack` returns False, and a line in the log says so.  Once the consumer has stopped they raise
ClosedError.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from gantry.model.message import StoredMessage
from gantry.model.route import MessageQueue

LEVEL_DEAD = -1


class Again(NamedTuple):
    """How a message is to come again: a delay level of the broker's, or after so many seconds, or as it sees fit."""

    level: int = 0
    after_s: float | None = None


class ReceivedMessage:
    """One delivery; `attempt` counts from 1."""

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
        self.wants_again = False  # somebody asked to have it brought again, or made a dead letter
        self.is_acked = False
        self.is_over = False  # acked, or given back: from then on it is another delivery's to be acked
        self._finish = finish
        self._again = again

    def following(self) -> ReceivedMessage:
        """The same message for another delivery by this consumer: what is done with the former does not concern it."""
        found = ReceivedMessage(self.stored, self.queue, self._finish, self._again)
        found.attempt = self.attempt + 1
        return found

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it comes through the group's retry topic."""
        return self.stored.topic

    @property
    def reconsume_times(self) -> int:
        """How often the broker has brought it again; `attempt` counts the first time and those in place too."""
        return self.stored.reconsume_times

    @property
    def body(self) -> bytes:
        """What was sent, decompressed."""
        return self.stored.body

    @property
    def decode_error(self) -> str:
        """Why `body` is the bytes that are stored and not what was sent; empty when it could be decoded."""
        return self.stored.decode_error

    @property
    def tags(self) -> str:
        """Its tag, empty without."""
        return self.stored.tags

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys it can be found by."""
        return self.stored.keys

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, RocketMQ's own ones among them."""
        return self.stored.properties

    @property
    def message_id(self) -> str:
        """The id that the producer gave it: the same for every copy, so a duplicate can be told by it."""
        return self.stored.message_id

    @property
    def queue_offset(self) -> int:
        """Where it stands in its queue."""
        return self.stored.queue_offset

    async def ack(self) -> bool:
        """Done with it; a second call changes nothing.

        Returns False when it comes again all the same: the call was too late, or `retry` or `give_up` came before.
        """
        if not self.is_over:
            self.is_acked = self.is_over = self._finish(self)
        return self.is_acked

    async def retry(self, after_s: float | None = None, *, level: int = 0) -> None:
        """Have it brought again: after at least so many seconds, or after a delay level (1 to 18) of the broker's.

        With neither, the delay grows with the attempts, from 10 s on.  Returns when the broker has it, or when it is
        certain that this consumer keeps it.
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
