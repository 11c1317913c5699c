"""What becomes of messages that were popped for a call that has ended."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from gantry.client.popped import PoppedMessage, Receipt
from gantry.client.requests.pop_requests import PopResult, PopStatus
from gantry.gateway import brokers
from gantry.model.route import BrokerData, MessageQueue, QueueData, TopicRoute
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy import receiving
from gantry.proxy.caller import Caller
from gantry.proxy.clients import KnownClients
from gantry.proxy.faults import FaultError
from gantry.proxy.handles import Handles
from gantry.proxy.receiving import ReceiveCalls
from testkit.grpcclient import resource
from testkit.turning import until
from unit.proxy.test_convert import STORED

CALLER = Caller("c", "JAVA", "5.0.7")
RECEIPTS = [Receipt(0, 1_700_000_000_000, 60_000, 1, 0, "broker-a", 0, offset) for offset in range(3)]
FOUND = PopResult(PopStatus.FOUND, tuple(PoppedMessage(STORED, receipt, "Tea") for receipt in RECEIPTS))


class Broker:
    """A broker that answers a pop when the test says so; it remembers what was given back."""

    def __init__(self) -> None:
        self.popping = self
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[PopResult] = asyncio.get_running_loop().create_future()
        self.given_back: list[Receipt] = []
        self.popped_at: list[str] = []
        self.known = TopicRoute((QueueData("broker-a", 1, 1, 6),))

    async def route(self, topic: str) -> TopicRoute:
        return self.known

    async def is_orderly(self, group: str) -> bool:
        return False

    async def pop(self, queue: MessageQueue, *_: Any) -> PopResult:
        self.asked.set()
        self.popped_at.append(queue.broker_name)
        return await self.answer

    async def give_back(self, group: str, topic: str, receipts: list[Receipt]) -> None:
        self.given_back += receipts


class Context:
    """A call; from the `fails_at`-th write on the client is gone."""

    def __init__(self, fails_at: int = 100) -> None:
        self.written: list[pb.ReceiveMessageResponse] = []
        self._fails_at = fails_at

    def time_remaining(self) -> float:
        return 30.0

    async def write(self, response: pb.ReceiveMessageResponse) -> None:
        if len(self.written) >= self._fails_at:
            raise asyncio.CancelledError
        self.written.append(response)


def begun(broker: Broker, context: Context) -> tuple[ReceiveCalls, asyncio.Task[int]]:
    calls = ReceiveCalls(cast(Any, broker), KnownClients(), Handles([b"0123456789abcdef"]), lambda: 0)
    request = pb.ReceiveMessageRequest(group=resource("g"), batch_size=3, auto_renew=True)
    request.message_queue.topic.name = "Tea"
    return calls, asyncio.ensure_future(calls.serve(request, cast(Any, context), CALLER))


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_comes_for_a_client_that_is_gone_is_given_back() -> None:
    broker = Broker()
    calls, call = begun(broker, Context())
    await broker.asked.wait()
    call.cancel()
    await asyncio.wait([call])
    assert calls.held == 1, "the broker may still answer"
    broker.answer.set_result(FOUND)
    await settled()
    assert broker.given_back == RECEIPTS
    assert calls.held == 0


async def test_only_messages_that_were_never_written_are_given_back() -> None:
    broker = Broker()
    _, call = begun(broker, context := Context(fails_at=2))
    broker.answer.set_result(FOUND)
    with pytest.raises(asyncio.CancelledError):
        await call
    await settled()
    assert [one.WhichOneof("content") for one in context.written] == ["status", "message"]
    assert broker.given_back == RECEIPTS[1:]


@pytest.mark.parametrize("ends", ["client", "proxy"])
async def test_a_goodbye_or_the_end_of_the_proxy_answers_a_call_that_waits(ends: str) -> None:
    broker = Broker()
    calls, call = begun(broker, Context())
    await broker.asked.wait()
    await settled()
    draining = asyncio.ensure_future(calls.drain(10.0)) if ends == "proxy" else None
    if ends == "client":
        calls.ended("c")
    with pytest.raises(FaultError) as caught:
        await call
    assert caught.value.code == pb.MESSAGE_NOT_FOUND
    broker.answer.set_result(FOUND)
    await settled()
    assert broker.given_back == RECEIPTS
    if draining is not None:
        await draining


async def test_whole_answers_keep_their_leases() -> None:
    broker = Broker()
    _, call = begun(broker, context := Context())
    broker.answer.set_result(FOUND)
    assert await call == pb.OK
    kinds = [one.WhichOneof("content") for one in context.written]
    assert kinds == ["status", "message", "message", "message", "delivery_timestamp"]
    assert not broker.given_back


async def test_ten_thousand_calls_wait_and_one_more_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    many = 10_000
    assert many < receiving.HELD_MAX < brokers.LIMITS.pending_max, "the connection to a broker takes them and more"
    monkeypatch.setattr(receiving, "HELD_MAX", 3 * many)  # a client gets a third
    broker = Broker()
    calls, first = begun(broker, Context())
    request = pb.ReceiveMessageRequest(group=resource("g"), batch_size=3, auto_renew=True)
    request.message_queue.topic.name = "Tea"
    held = [first]
    held += [asyncio.ensure_future(calls.serve(request, cast(Any, Context()), CALLER)) for _ in range(many - 1)]
    await until(lambda: calls.held == many)
    with pytest.raises(FaultError) as caught:
        await calls.serve(request, cast(Any, Context()), CALLER)
    assert caught.value.code == pb.TOO_MANY_REQUESTS
    other = asyncio.ensure_future(calls.serve(request, cast(Any, Context()), replace(CALLER, peer="10.0.0.9:1")))
    await until(lambda: calls.held == many + 1)
    other.cancel()
    calls.ended(CALLER.client_id)
    answers = await asyncio.gather(*held, return_exceptions=True)
    assert {answer.code for answer in answers if isinstance(answer, FaultError)} == {pb.MESSAGE_NOT_FOUND}
    broker.answer.set_result(FOUND)
    await settled()
    assert calls.held == calls._places.taken == 0
    assert len(broker.given_back) == (many + 1) * len(RECEIPTS), "what comes for them is given back"


async def test_a_call_that_names_no_broker_asks_those_of_the_topic_that_can_answer_in_turn() -> None:
    broker = Broker()
    broker.answer.set_result(PopResult(PopStatus.FOUND, FOUND.messages))
    with_master = [BrokerData("c", name, {0: "127.0.0.1:1"}) for name in ("a", "b")]
    queues = [QueueData(name, 1, 1, 6) for name in ("a", "b", "headless")] + [QueueData("write-only", 1, 1, 2)]
    broker.known = TopicRoute(tuple(queues), (*with_master, BrokerData("c", "headless", {1: "127.0.0.1:2"})))
    calls = ReceiveCalls(cast(Any, broker), KnownClients(), Handles([b"0123456789abcdef"]), lambda: 0)

    async def asked(named: str = "", attempt: str = "") -> str:
        request = pb.ReceiveMessageRequest(group=resource("g"), batch_size=3, auto_renew=True)
        request.message_queue.topic.name, request.message_queue.broker.name = "Tea", named
        request.attempt_id = attempt
        assert await calls.serve(request, cast(Any, Context()), CALLER) == pb.OK
        return broker.popped_at[-1]

    assert {await asked() for _ in range(4)} == {"a", "b"}
    assert len({await asked(attempt="7f3c") for _ in range(4)}) == 1, "a repeated attempt goes to the same broker"
    assert await asked(named="headless") == "headless"
    broker.known = TopicRoute((QueueData("write-only", 1, 1, 2),))
    with pytest.raises(FaultError) as caught:
        await asked()
    assert caught.value.code == pb.FORBIDDEN
