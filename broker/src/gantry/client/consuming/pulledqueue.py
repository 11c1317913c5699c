"""One queue of a pull consumer: messages that were pulled and not polled yet, and the group's position.

The position is the offset of the next message that a poll would return.  A poll means that the messages of the last
poll are processed, so everything before the position is done; `done` keeps that offset for the next commit.  A reset of
the group, or a topic that was created again, begins another life of the queue (see `intake`).  The `done` offset of a
former life is not committed, because that would undo the reset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from gantry.client.consuming.intake import Intake, Memory
from gantry.client.requests.questions import PullSettings
from gantry.client.settings import ConsumerSettings
from gantry.model.message import StoredMessage
from gantry.model.route import MessageQueue


class At:
    """A fixed start offset, in place of `Offsets`."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    async def start(self, queue: MessageQueue, settings: ConsumerSettings, now_ms: int) -> int:
        """Return the fixed offset, whatever the settings say."""
        return self._offset


class PulledQueue:
    """Holds the messages that its intake pulled until they are polled; replaced by a new object after a seek."""

    def __init__(self, queue: MessageQueue, pulling: PullSettings, memory: Memory, news: Callable[[], None]) -> None:
        self.queue = queue
        self.intake = Intake(queue, pulling, memory, self._deliver)
        self._done: tuple[int | None, int] = None, 0  # an offset, and its life
        self._committed: tuple[int | None, int] = None, 0
        self._news = news
        self._waiting: deque[tuple[StoredMessage, int]] = deque()  # with the life of the intake; bounded by its window

    @property
    def position(self) -> int | None:
        """The offset of the next message to return; None until the start is known."""
        self._forget_former_lives()
        return self._waiting[0][0].queue_offset if self._waiting else self.intake.progress

    @property
    def done(self) -> int | None:
        """The offset before which everything is processed in this life of the queue; None: nothing is."""
        offset, life = self._done
        return offset if life == self.intake.life else None

    @property
    def to_commit(self) -> int | None:
        """The offset to commit; None when the broker has it, or nothing is done."""
        return None if self._done == self._committed else self.done

    def settle(self) -> None:
        """Note that every message that was returned so far is processed."""
        self._done = self.position, self.intake.life

    def was_committed(self, offset: int, life: int) -> None:
        """Note that this offset of that life was committed."""
        self._committed = offset, life

    def take(self, count_max: int) -> list[StoredMessage]:
        """Return the next messages, at most `count_max`; empty when there are none."""
        self._forget_former_lives()
        found: list[StoredMessage] = []
        while self._waiting and len(found) < count_max:
            message, life = self._waiting.popleft()
            self.intake.finish(message.queue_offset, life)
            found.append(message)
        return found

    def drop(self) -> None:
        """Drop the waiting messages and give their memory back."""
        self._waiting.clear()
        self.intake.drop()

    def _forget_former_lives(self) -> None:
        while self._waiting and self._waiting[0][1] != self.intake.life:
            self._waiting.popleft()

    def _deliver(self, intake: Intake, message: StoredMessage) -> None:
        self._waiting.append((message, intake.life))
        self._news()
