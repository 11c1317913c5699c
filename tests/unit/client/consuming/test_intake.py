"""What counts as finished when a queue begins again under messages that are in work."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gantry.client.consuming.intake import Intake, Memory
from gantry.client.requests import questions
from gantry.client.requests.questions import PullSettings
from gantry.client.results import PullResult, PullStatus
from gantry.client.settings import ConsumerSettings
from gantry.leaves.frames import Command
from gantry.model.message import StoredMessage
from gantry.model.route import MessageQueue
from gantry.model.subscription import Subscription
from testkit.onequeue import record as record_of
from testkit.patience import HANG_S
from testkit.turning import until

QUEUE = MessageQueue("orders", "broker-a", 0)


def _message(offset: int, body: bytes) -> StoredMessage:
    return StoredMessage("orders", body, {}, 0, offset, 0, 100, 0, 0, 0, "", 0, "", 0, 0, "")


class Broker:
    """Replicas, routes and offsets in one: begins at 5, answers pulls from a list, then is silent."""

    def __init__(self, *replies: PullResult) -> None:
        self.replies = list(replies)
        self.is_silent = asyncio.Event()

    async def pull(self, *_: object) -> tuple[PullResult, bool]:
        if not self.replies:
            self.is_silent.set()
            await asyncio.Event().wait()
        return self.replies.pop(0), True

    async def start(self, queue: MessageQueue, settings: ConsumerSettings, now_ms: int) -> int:
        return 5


async def test_a_message_of_the_queues_former_life_does_not_finish_one_of_the_new() -> None:
    """The topic was made again, or a power cut took the end of its queue: the same offset is another message now."""

    found = PullStatus.FOUND
    broker = Broker(
        PullResult(found, 6, 0, 6, (_message(5, b"old"),)),
        PullResult(PullStatus.OFFSET_ILLEGAL, 5, 0, 6),
        PullResult(found, 6, 0, 6, (_message(5, b"new"),)),
    )
    came: list[tuple[bytes, int]] = []

    def deliver(intake: Intake, message: StoredMessage) -> None:
        came.append((message.body, intake.life))

    memory = Memory(1 << 20)
    intake = Intake(QUEUE, PullSettings("readers", Subscription("orders", "*")), memory, deliver)
    running = intake.run(broker, broker, broker, ConsumerSettings(), 0)  # type: ignore[arg-type]
    task = asyncio.ensure_future(running)
    await broker.is_silent.wait()
    (_, before), (body, after) = came
    assert body == b"new" and memory.bytes == 100
    intake.finish(5, before)
    assert intake.to_commit is None and memory.bytes == 100, "the last pull told 5, and there it is still"
    intake.finish(5, after)
    assert intake.to_commit == 6 and memory.bytes == 0
    task.cancel()


@pytest.mark.parametrize("is_finished", [True, False])
async def test_a_queue_is_idle_when_the_last_message_in_work_is_finished_or_put_down(is_finished: bool) -> None:
    broker = Broker(PullResult(PullStatus.FOUND, 7, 0, 7, (_message(5, b"one"), _message(6, b"two"))))
    read = PullSettings("readers", Subscription("orders", "*"))
    intake = Intake(QUEUE, read, Memory(1 << 20), lambda intake, message: intake.hand_out(message.queue_offset))
    running = intake.run(broker, broker, broker, ConsumerSettings(), 0)  # type: ignore[arg-type]
    task = asyncio.ensure_future(running)
    await broker.is_silent.wait()
    idle = asyncio.ensure_future(intake.idle())
    for offset in (5, 6):
        await asyncio.sleep(0)
        assert not idle.done()
        if is_finished:
            intake.finish(offset, intake.life)
        else:
            intake.put_down(offset, intake.life)
    async with asyncio.timeout(HANG_S):
        await idle
    task.cancel()


async def test_a_record_that_cannot_be_read_is_passed_over_and_named(caplog: pytest.LogCaptureFixture) -> None:
    damaged = replace(_message(6, b"bytes"), decode_error="the record is damaged")
    broker = Broker(PullResult(PullStatus.FOUND, 8, 0, 8, (_message(5, b"one"), damaged, _message(7, b"two"))))
    came: list[int] = []
    memory = Memory(1 << 20)
    intake = Intake(
        QUEUE,
        PullSettings("readers", Subscription("orders", "*")),
        memory,
        lambda _, message: came.append(message.queue_offset),
    )
    running = intake.run(broker, broker, broker, ConsumerSettings(), 0)  # type: ignore[arg-type]
    task = asyncio.ensure_future(running)
    await broker.is_silent.wait()
    task.cancel()
    assert came == [5, 7] and "the record at offset 6" in caplog.text
    for offset in came:
        intake.finish(offset, intake.life)
    assert intake.to_commit == 8 and memory.bytes == 0, "no broker takes it back, so the queue would wait for ever"


async def test_a_queue_that_holds_nothing_is_pulled_while_another_one_holds_all_the_memory() -> None:
    """An orderly queue rests as long as its message fails; a pull consumer's, as long as it is paused."""
    memory = Memory(1)
    came: list[MessageQueue] = []
    brokers = [Broker(PullResult(PullStatus.FOUND, 6, 0, 9, (_message(5, b"x"),))) for _ in range(2)]
    tasks = []
    for number, broker in enumerate(brokers):
        queue = MessageQueue("orders", "broker-a", number)
        pulling = PullSettings("readers", Subscription("orders", "*"))
        intake = Intake(queue, pulling, memory, lambda intake, _: came.append(intake.queue))
        running = intake.run(broker, broker, broker, ConsumerSettings(), 0)  # type: ignore[arg-type]
        tasks.append(asyncio.ensure_future(running))
        await until(lambda at=queue: at in came)
    assert memory.bytes == 200 and not any(broker.is_silent.is_set() for broker in brokers), "nothing more is pulled"
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize(
    ("at", "bit", "flipped"),
    [(20, 1, ()), (27, 4, ()), (27, 2, ()), (20, 1, (3,)), (27, 4, (3,))],
    ids=["beyond", "before", "within", "beyond-and-size", "before-and-size"],
)
def test_a_record_that_names_a_place_not_its_own_leads_nobody_there(
    at: int, bit: int, flipped: tuple[int, ...]
) -> None:
    """Its reader would go on behind it, and pass over everything before; or pull the same for ever."""
    damaged = bytearray(record_of(5))
    damaged[at] ^= bit
    for each in flipped:
        damaged[each] ^= 0x01
    ext = {"nextBeginOffset": "8", "minOffset": "0", "maxOffset": "9"}
    reply = Command(0, ext=ext, body=bytes(damaged) + record_of(6) + record_of(7))
    question = questions.pull(QUEUE, 5, PullSettings("readers", Subscription("orders", "*")))
    found = question.read(reply)
    offsets = [message.queue_offset for message in found.messages]
    assert offsets == list(range(5, 5 + len(offsets))) and found.next_offset == (6 if flipped else 8)
    assert [bool(message.decode_error) for message in found.messages][:2] == [True, False][: len(offsets)]
