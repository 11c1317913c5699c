"""A message as a consumer hands it out: the stored message, and the two ways to be done with it.

`ack` means: finished, progress may pass it.  `retry` means: hand it out again later; until then the
group's progress in its queue stays before it, so a crash brings it back, never loses it.  A message that
is neither acked nor retried holds up the progress of its queue for as long as the consumer runs.

Once a queue has gone to another member of the group, both change nothing: that member gets the message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gantry.model.message import StoredMessage
from gantry.model.route import MessageQueue


class ReceivedMessage:
    """One delivery; `attempt` counts from 1."""

    __slots__ = ("_again", "_finish", "attempt", "queue", "stored")

    def __init__(
        self,
        stored: StoredMessage,
        queue: MessageQueue,
        finish: Callable[[ReceivedMessage], None],
        again: Callable[[ReceivedMessage, float | None], None],
    ) -> None:
        self.stored = stored
        self.queue = queue
        self.attempt = 1 + stored.reconsume_times
        self._finish = finish
        self._again = again

    @property
    def topic(self) -> str:
        """The topic it was sent to."""
        return self.stored.topic

    @property
    def body(self) -> bytes:
        """What was sent, decompressed."""
        return self.stored.body

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

    async def ack(self) -> None:
        """Done with it; a second call changes nothing."""
        self._finish(self)

    async def retry(self, after_s: float | None = None) -> None:
        """Hand it out again after so many seconds, by the ladder of the settings when none are given."""
        self._again(self, after_s)

    def __repr__(self) -> str:
        return f"ReceivedMessage({self.topic}, {self.queue.broker_name}/{self.queue.queue_id}, {self.queue_offset})"
