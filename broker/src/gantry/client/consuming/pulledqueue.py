"""One queue of a pull consumer: what was pulled and not yet asked for, and where the group stands in it.

The position is the offset of the next message that a poll would hand out.  A poll says that everything before the
position it finds is done, because anyone who polls again has ended with what the last poll gave; `done` keeps that for
the next commit.  A reset of the group, or a topic made again, is another life of the queue (see `intake`): what was
done in the former one is not committed in the new one, because that commit would undo the reset.
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
    """A start that somebody has named; in place of `Offsets`."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    async def start(self, queue: MessageQueue, settings: ConsumerSettings, now_ms: int) -> int:
        """That offset."""
        return self._offset


class PulledQueue:
    """Holds what its intake brings until it is taken; made again when somebody seeks."""

    def __init__(self, queue: MessageQueue, pulling: PullSettings, memory: Memory, news: Callable[[], None]) -> None:
        self.queue = queue
        self.intake = Intake(queue, pulling, memory, self._deliver)
        self._done: tuple[int | None, int] = None, 0  # an offset, and the life in which it was done
        self._committed: tuple[int | None, int] = None, 0
        self._news = news
        self._waiting: deque[tuple[StoredMessage, int]] = deque()  # with the life of the intake; bounded by its window

    @property
    def position(self) -> int | None:
        """The offset of what is handed out next; None until the start is known."""
        self._forget_former_lives()
        return self._waiting[0][0].queue_offset if self._waiting else self.intake.progress

    @property
    def done(self) -> int | None:
        """The group has ended with everything before this offset; None: with nothing in this life of the queue."""
        offset, life = self._done
        return offset if life == self.intake.life else None

    @property
    def to_commit(self) -> int | None:
        """What the broker should be told; None when it knows, or when nothing is done."""
        return None if self._done == self._committed else self.done

    def settle(self) -> None:
        """What was handed out so far is done."""
        self._done = self.position, self.intake.life

    def was_committed(self, offset: int, life: int) -> None:
        """The broker was told what was done in that life."""
        self._committed = offset, life

    def take(self, count_max: int) -> list[StoredMessage]:
        """The next messages, none when there are none."""
        self._forget_former_lives()
        found: list[StoredMessage] = []
        while self._waiting and len(found) < count_max:
            message, life = self._waiting.popleft()
            self.intake.finish(message.queue_offset, life)
            found.append(message)
        return found

    def drop(self) -> None:
        """Give the memory back; nothing is pulled any more."""
        self._waiting.clear()
        self.intake.drop()

    def _forget_former_lives(self) -> None:
        while self._waiting and self._waiting[0][1] != self.intake.life:
            self._waiting.popleft()

    def _deliver(self, intake: Intake, message: StoredMessage) -> None:
        self._waiting.append((message, intake.life))
        self._news()
