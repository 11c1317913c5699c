"""Receives of a queue share pops: who gets what, who is answered when, what is given back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from gantry.client.popped import PoppedMessage, Receipt
from gantry.client.requests.pop_requests import PopResult, PopStatus
from gantry.client.requests.question import Question
from gantry.errors import GantryError, RefusedError, UnreachableError
from gantry.model.message import StoredMessage
from gantry.model.route import MessageQueue
from gantry.queues.attributes import KnownQueue, QueueSettings
from gantry.queues.faults import QueueFaultError
from gantry.queues.receiving import QueueReceives
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.turning import until

QUEUE = KnownQueue("Tea", "0123456789abcdef", QueueSettings(visibility_s=60))


def popped(number: int) -> PoppedMessage:
    stored = StoredMessage("Tea", b"m%d" % number, {}, 7, number, 0, 100, 0, 0, 0, "h:1", 0, "h:1", 0, 0, "id")
    return PoppedMessage(stored, Receipt(number, 1, 60_000, 0, 0, "a", 7, number), "Tea")


@dataclass
class Masters:
    """Stands for session, routes and popping of all masters: what they have, and what was asked of them."""

    names: tuple[str, ...] = ("a",)
    stock: dict[str, list[PoppedMessage]] = field(default_factory=dict)
    failing: dict[str, GantryError] = field(default_factory=dict)
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event | None = None  # pops wait for it
    routeless: list[GantryError] = field(default_factory=list)  # what routes fail with after the pops of a round

    @property
    def session(self) -> Masters:
        return self

    @property
    def routes(self) -> Masters:
        return self

    @property
    def popping(self) -> Masters:
        return self

    async def to_read(self, topic: str) -> list[MessageQueue]:
        if self.asked and self.routeless:
            raise self.routeless.pop(0)
        return [MessageQueue(topic, name, number) for name in self.names for number in range(16)]

    def master(self, queue: MessageQueue) -> str:
        return queue.broker_name

    def doubt(self, topic: str) -> None:
        pass

    async def ask(self, address: str, question: Question[object], timeout_s: float) -> object:
        if question.command.code == RequestCode.NOTIFICATION:
            self.asked.append((address, "hold", 0))
            await self.news.wait()
            return True
        count = int(question.command.ext["maxMsgNums"])
        assert question.command.ext["gantryOrder"] == "priority"
        self.asked.append((address, "pop", count))
        if self.gate is not None:
            await self.gate.wait()
        if address in self.failing:
            raise self.failing[address]
        stock = self.stock.setdefault(address, [])
        taken, stock[:] = stock[:count], stock[count:]
        return PopResult(PopStatus.FOUND if taken else PopStatus.EMPTY, tuple(taken))

    async def give_back(self, group: str, topic: str, receipts: list[Receipt]) -> None:
        self.returned += [one.offset for one in receipts]

    def pops(self) -> list[tuple[str, int]]:
        return [(name, count) for name, kind, count in self.asked if kind == "pop"]


def bodies(messages: list[PoppedMessage]) -> list[bytes]:
    return [one.body for one in messages]


async def test_calls_of_one_turn_share_a_pop_and_get_messages_in_their_order() -> None:
    masters = Masters(stock={"a": [popped(number) for number in range(6)]})
    receives = QueueReceives(masters)  # type: ignore[arg-type]
    counts = (1, 3, 1, 5)
    found = await asyncio.gather(*(receives.receive(QUEUE, count, 0) for count in counts))
    assert [bodies(one) for one in found] == [[b"m0"], [b"m1", b"m2", b"m3"], [b"m4"], [b"m5"]]
    assert masters.pops()[0] == ("a", 10) and not masters.returned
    await receives.close()


async def test_a_call_that_does_not_wait_is_empty_after_every_master_was_asked() -> None:
    masters = Masters(("a", "b", "c"))
    receives = QueueReceives(masters)  # type: ignore[arg-type]
    assert await receives.receive(QUEUE, 1, 0) == []
    assert sorted(masters.pops()) == [("a", 1), ("b", 1), ("c", 1)]
    assert not [one for one in masters.asked if one[1] == "hold"]
    await receives.close()


async def test_a_call_goes_on_when_the_route_is_not_known_for_a_moment() -> None:
    masters = Masters(("a",), routeless=[UnreachableError("no name server answers")])
    receives = QueueReceives(masters)  # type: ignore[arg-type]
    call = asyncio.ensure_future(receives.receive(QUEUE, 1, 30))
    await until(lambda: call.done() or [one for one in masters.asked if one[1] == "hold"])
    assert not call.done(), "an empty answer long before its time has clients ask again and again"
    masters.stock["a"] = [popped(1)]
    masters.news.set()
    assert bodies(await call) == [b"m1"]
    await receives.close()


async def test_a_call_is_told_that_its_queue_was_deleted_while_it_waits() -> None:
    gone = RefusedError(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
    masters = Masters(("a",), routeless=[gone])
    receives = QueueReceives(masters)  # type: ignore[arg-type]
    with pytest.raises(QueueFaultError) as caught:
        await receives.receive(QUEUE, 1, 30)
    assert caught.value.code == "QueueNotExist"
    await receives.close()


async def test_one_request_is_held_at_each_master_for_all_calls() -> None:
    masters = Masters(("a", "b"))
    receives = QueueReceives(masters)  # type: ignore[arg-type]
    calls = [asyncio.ensure_future(receives.receive(QUEUE, 1, 30)) for _ in range(50)]
    await until(lambda: len([one for one in masters.asked if one[1] == "hold"]) == 2)
    asked = len(masters.asked)
    calls += [asyncio.ensure_future(receives.receive(QUEUE, 1, 30)) for _ in range(50)]
    await until(lambda: receives.held == 100)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(masters.asked) == asked, "those that come later need no request"
    masters.stock["b"] = [popped(number) for number in range(100)]
    masters.news.set()
    found = await asyncio.gather(*calls)
    assert sorted(one[0].stored.queue_offset for one in found) == list(range(100))
    await receives.close()


async def test_a_call_that_comes_during_a_pop_has_one_of_its_own() -> None:
    """The message may have been sent after the pop that is under way, and before the call."""
    masters = Masters(gate=asyncio.Event())
    receives = QueueReceives(masters)  # type: ignore[arg-type]
    first = asyncio.ensure_future(receives.receive(QUEUE, 1, 0))
    await until(lambda: bool(masters.asked))
    second = asyncio.ensure_future(receives.receive(QUEUE, 1, 0))
    await until(lambda: receives.held == 2)
    assert masters.gate is not None
    masters.gate.set()
    assert await first == []
    masters.stock["a"] = [popped(1)]
    assert bodies(await second) == [b"m1"]
    await receives.close()


async def test_what_comes_for_a_call_that_is_gone_is_given_back() -> None:
    masters = Masters(stock={"a": [popped(1), popped(2)]}, gate=asyncio.Event())
    receives = QueueReceives(masters)  # type: ignore[arg-type]
    gone, stays = (asyncio.ensure_future(receives.receive(QUEUE, 1, 0)) for _ in range(2))
    await until(lambda: bool(masters.asked))
    gone.cancel()
    assert masters.gate is not None
    masters.gate.set()
    assert bodies(await stays) == [b"m1"]
    await until(lambda: masters.returned == [2])
    with pytest.raises(asyncio.CancelledError):
        await gone
    await receives.close()


async def test_a_call_that_goes_in_the_moment_of_its_answer_has_its_messages_given_back() -> None:
    masters = Masters(stock={"a": [popped(1)]}, gate=asyncio.Event())
    receives = QueueReceives(masters)  # type: ignore[arg-type]
    call = asyncio.ensure_future(receives.receive(QUEUE, 1, 0))
    await until(lambda: bool(masters.asked))
    assert masters.gate is not None
    masters.gate.set()
    while masters.stock["a"]:  # noqa: ASYNC110  to the very turn in which the pop ends
        await asyncio.sleep(0)
    while not call.done() and not masters.returned:
        call.cancel()
        await asyncio.sleep(0)
    await until(lambda: masters.returned == [1])
    await receives.close()


async def test_a_master_that_fails_does_not_matter_while_another_answers() -> None:
    masters = Masters(("a", "b"), failing={"a": UnreachableError("gone")}, stock={"b": [popped(1)]})
    receives = QueueReceives(masters)  # type: ignore[arg-type]
    assert bodies(await receives.receive(QUEUE, 1, 0)) == [b"m1"]
    assert await receives.receive(QUEUE, 1, 0) == []
    await receives.close()


async def test_while_all_masters_fail_a_call_waits_for_the_next_one() -> None:
    masters = Masters(failing={"a": UnreachableError("gone")}, stock={"a": [popped(1)]})
    receives = QueueReceives(masters)  # type: ignore[arg-type]
    call = asyncio.ensure_future(receives.receive(QUEUE, 1, 0))
    await until(lambda: len(masters.asked) > 1)
    assert not call.done()
    masters.failing.clear()
    assert bodies(await call) == [b"m1"]
    await receives.close()


async def test_a_queue_that_was_deleted_meanwhile_is_said_to_be_gone_at_once() -> None:
    masters = Masters(failing={"a": RefusedError(ResponseCode.TOPIC_NOT_EXIST, "none")})
    receives = QueueReceives(masters)  # type: ignore[arg-type]
    with pytest.raises(QueueFaultError) as caught:
        await receives.receive(QUEUE, 1, 30)
    assert caught.value.code == "QueueNotExist"
    await receives.close()


async def test_at_the_end_all_calls_are_answered_as_empty() -> None:
    masters = Masters()
    receives = QueueReceives(masters)  # type: ignore[arg-type]
    calls = [asyncio.ensure_future(receives.receive(QUEUE, 1, 30)) for _ in range(3)]
    await until(lambda: any(one[1] == "hold" for one in masters.asked))
    receives.drain()
    assert await asyncio.gather(*calls) == [[], [], []]
    assert await receives.receive(QUEUE, 1, 30) == []
    await receives.close()


async def test_calls_that_ended_in_any_way_want_nothing_more() -> None:
    masters = Masters()
    receives = QueueReceives(masters)  # type: ignore[arg-type]
    late = asyncio.ensure_future(receives.receive(QUEUE, 3, 0.05))
    gone, last = (asyncio.ensure_future(receives.receive(QUEUE, 5, 30)) for _ in range(2))
    await until(lambda: any(one[1] == "hold" for one in masters.asked))
    (worker,) = receives._workers.values()
    assert worker._wanted == 13
    assert await late == []
    assert worker._wanted == 10
    gone.cancel()
    await until(lambda: worker._wanted == 5)
    receives.drain()
    assert await last == [] and worker._wanted == 0
    await receives.close()
