"""What was pulled ahead of one queue, and what counts as done."""

from __future__ import annotations

from gantry.client.consuming.intake import Memory
from gantry.client.consuming.pulledqueue import PulledQueue
from gantry.client.consuming.window import Window
from gantry.client.requests.questions import PullSettings
from gantry.client.results import PullResult, PullStatus
from gantry.model.message import StoredMessage
from gantry.model.route import MessageQueue
from gantry.model.subscription import Subscription
from gantry.wire import record
from testkit.onequeue import record as bytes_of

QUEUE = MessageQueue("T", "broker-a", 0)


class Play:
    """A queue whose intake is fed by hand."""

    def __init__(self, start: int = 0) -> None:
        self.memory = Memory(1 << 20)
        self.news = 0
        self.one = PulledQueue(QUEUE, PullSettings("g", Subscription("T")), self.memory, self._heard)
        self.window = self.one.intake._window = Window(start)

    def _heard(self) -> None:
        self.news += 1

    def brings(self, *offsets: int, end: int) -> None:
        found = tuple(message for offset in offsets for message in record.messages(bytes_of(offset)))
        self.one.intake._take(PullResult(PullStatus.FOUND, end, 0, 99, found), self.window)


def offsets(messages: list[StoredMessage]) -> list[int]:
    return [message.queue_offset for message in messages]


def test_the_position_is_what_comes_next_and_settling_says_that_all_before_is_done() -> None:
    play_ = Play()
    play_.brings(0, 1, 2, end=3)
    assert (play_.one.position, play_.one.done, play_.news) == (0, None, 3)
    assert offsets(play_.one.take(2)) == [0, 1]
    assert (play_.one.position, play_.one.done) == (2, None)
    play_.one.settle()
    assert play_.one.done == 2
    assert offsets(play_.one.take(9)) == [2]
    play_.one.settle()
    assert play_.one.done == 3
    assert play_.memory.bytes == 0


def test_what_the_broker_filtered_out_is_done_when_nothing_else_waits() -> None:
    play_ = Play()
    play_.brings(0, end=50)
    assert play_.one.position == 0
    play_.one.take(1)
    assert play_.one.position == 50


def test_messages_of_another_life_of_the_queue_are_not_handed_out() -> None:
    play_ = Play()
    play_.brings(0, 1, end=2)
    play_.one.intake._take(PullResult(PullStatus.OFFSET_ILLEGAL, 40, 40, 99), play_.window)
    assert play_.one.take(9) == []
    assert play_.one.position == 40
    play_.brings(40, end=41)
    assert offsets(play_.one.take(9)) == [40]


async def test_dropping_gives_the_memory_back() -> None:
    play_ = Play()
    play_.brings(0, 1, end=2)
    assert play_.memory.bytes
    play_.one.drop()
    assert play_.memory.bytes == 0
    assert play_.one.take(9) == []


def test_what_was_done_in_a_former_life_is_not_committed_in_the_new_one() -> None:
    play_ = Play()
    play_.brings(0, 1, end=2)
    play_.one.take(9)
    play_.one.settle()
    assert (play_.one.done, play_.one.to_commit) == (2, 2)
    play_.one.intake._take(PullResult(PullStatus.OFFSET_ILLEGAL, 40, 40, 99), play_.window)
    assert (play_.one.done, play_.one.to_commit) == (None, None)
    play_.one.was_committed(2, 0)  # it had left before
    play_.one.settle()
    assert (play_.one.done, play_.one.to_commit) == (40, 40)
    play_.one.was_committed(40, 1)
    assert (play_.one.done, play_.one.to_commit) == (40, None)
