"""The rules of forwarding, with a broker and a subscriber that answer as a test wants."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from gantry.client.popped import PoppedMessage, Receipt
from gantry.client.requests.pop_requests import PopResult, PopSettings, PopStatus
from gantry.errors import GantryError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.gateway.brokers import Brokers
from gantry.model.message import StoredMessage
from gantry.model.route import MessageQueue
from gantry.queues import deliveries, fanout
from gantry.queues.deliveries import Deliveries
from gantry.queues.fanout import FanOut
from gantry.queues.faults import no_queue
from gantry.queues.notifications import PublishedMessage
from gantry.queues.sending import QueueSends
from gantry.queues.subscriptions import KnownTopic, NotifyStrategy, TopicSubscription
from gantry.queues.table import KnownQueues
from gantry.queues.topictable import KnownTopics
from gantry.wire.codes import ResponseCode

ENDPOINT = "acs:mns:r:a:queues/q"


def subscription(name: str = "s", **more: object) -> TopicSubscription:
    return TopicSubscription(name, name.ljust(16, "0"), ENDPOINT, **more)  # type: ignore[arg-type]


def popped(offset: int, attempts: int = 0, tag: str = "") -> PoppedMessage:
    properties = {"UNIQ_KEY": f"id{offset}", **({"TAGS": tag} if tag else {})}
    stored = StoredMessage(
        "t", b"body", properties, 0, offset, offset * 100, 100, 0, 0, 1, "h", 1, "h", attempts, 0, "o", "broker-a"
    )
    return PoppedMessage(stored, Receipt(offset, 1, 1, 0, "0", "broker-a", 0, offset), "t")


class Broker:
    """Pops give `answers` in turn and then wait; what is settled is kept."""

    def __init__(self) -> None:
        self.answers: list[PopResult | GantryError] = []
        self.pops: list[tuple[MessageQueue, PopSettings]] = []
        self.acked: list[int] = []
        self.changed: list[tuple[int, float]] = []
        self.popping = self
        self.happened = asyncio.Event()

    async def masters(self) -> dict[str, str]:
        return {"broker-a": "127.0.0.1:1"}

    async def pop(self, queue: MessageQueue, settings: PopSettings) -> PopResult:
        self.pops.append((queue, settings))
        self.happened.set()
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, GantryError):
            raise answer
        return answer

    async def ack(self, group: str, topic: str, receipts: list[Receipt]) -> list[None]:
        self.acked += [one.offset for one in receipts]
        self.happened.set()
        return [None] * len(receipts)

    async def change(self, group: str, topic: str, receipt: Receipt, after_s: float) -> Receipt:
        self.changed.append((receipt.offset, after_s))
        self.happened.set()
        return receipt

    def found(self, *messages: PoppedMessage) -> None:
        self.answers.append(PopResult(PopStatus.FOUND, messages))

    async def until(self, holds: object) -> None:
        async with asyncio.timeout(60):
            while not holds():  # type: ignore[operator]
                self.happened.clear()
                await self.happened.wait()


class Subscriber:
    """Fails as often as it is told to; `got` has what it took."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.got: list[str] = []

    async def deliver(self, one: TopicSubscription, message: PublishedMessage, source: PoppedMessage) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.got.append(message.message_id)


def forwarding(broker: Broker, subscriber: Subscriber, *subscriptions: TopicSubscription, push: bool = False) -> FanOut:
    topic = KnownTopic("t", "0" * 16, every={one.name: one for one in subscriptions})

    async def every() -> dict[str, KnownTopic]:
        return {"t": topic}

    topics = SimpleNamespace(every=every, on_change=None, on_end=None)
    return FanOut(cast(Brokers, broker), cast(KnownTopics, topics), subscriber.deliver, push)


async def test_a_delivered_message_is_acknowledged_and_other_tags_too() -> None:
    broker, subscriber = Broker(), Subscriber()
    broker.found(popped(1, tag="red"), popped(2, tag="blue"))
    forward = forwarding(broker, subscriber, subscription(tag="red"))
    forward.start()
    await broker.until(lambda: len(broker.acked) == 2)
    await forward.close()
    assert subscriber.got == ["id1"], "brokers compare hashes of tags only"
    settings = broker.pops[0][1]
    assert (settings.group, settings.subscription.expression) == ("gantry-sub-" + "s".ljust(16, "0"), "red")
    assert settings.from_first, "a queue of a new master is read from its first message"


@pytest.mark.parametrize("error", [no_queue("q"), RefusedError(ResponseCode.NO_PERMISSION, "no")])
async def test_a_failed_message_comes_again_after_the_time_of_its_strategy(error: GantryError) -> None:
    broker, subscriber = Broker(), Subscriber(error)
    broker.found(popped(7, attempts=3))
    forward = forwarding(broker, subscriber, subscription(strategy=NotifyStrategy.DECAY))
    forward.start()
    await broker.until(lambda: broker.changed)
    await forward.close()
    assert broker.changed == [(7, 8.0)] and not broker.acked and not subscriber.got


async def test_after_the_last_retry_it_is_given_up() -> None:
    broker, subscriber = Broker(), Subscriber(no_queue("q"), no_queue("q"))
    broker.found(popped(1, attempts=2), popped(2, attempts=3))
    forward = forwarding(broker, subscriber, subscription())
    forward.start()
    await broker.until(lambda: broker.acked and broker.changed)
    await forward.close()
    assert broker.acked == [2] and [offset for offset, _ in broker.changed] == [1]
    assert forward.counts == {"retried": 1, "given_up": 1}


@pytest.mark.parametrize(
    "error", [UnreachableError("gone"), OutcomeUnknownError("lost"), RefusedError(ResponseCode.SYSTEM_BUSY, "busy")]
)
async def test_an_outage_of_brokers_is_no_fault_of_the_subscriber(error: GantryError) -> None:
    broker, subscriber = Broker(), Subscriber(error)
    broker.found(popped(1, attempts=1000))
    forward = forwarding(broker, subscriber, subscription())
    forward.start()
    await broker.until(lambda: broker.changed)
    await forward.close()
    assert not broker.acked and 10 <= broker.changed[0][1] <= 20


async def test_attempts_that_were_outages_use_up_no_retries() -> None:
    broker, subscriber = Broker(), Subscriber(*[UnreachableError("gone")] * 5, *[no_queue("q")] * 4)
    for attempts in range(9):
        broker.found(popped(1, attempts=attempts))
    forward = forwarding(broker, subscriber, subscription())
    forward.start()
    await broker.until(lambda: len(broker.pops) == 10)
    await forward.close()
    assert forward.counts == {"retried": 8, "given_up": 1} and len(broker.changed) == 8 and broker.acked == [1]


async def test_endpoints_that_do_not_answer_are_no_fault_of_another_subscriber(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "PUSHES_MAX", 0)
    monkeypatch.setattr(deliveries, "PLACE_S", 0.001)
    pushing = Deliveries(cast(KnownQueues, None), cast(QueueSends, None))
    broker = Broker()
    broker.found(popped(1, attempts=1000))
    http = TopicSubscription("h", "h" * 16, "http://x")
    forward = forwarding(broker, cast(Subscriber, pushing), http, push=True)
    forward.start()
    await broker.until(lambda: broker.changed or broker.acked)
    await forward.close()
    await pushing.close()
    assert not broker.acked and forward.counts == {"retried": 1}


async def test_one_failure_does_not_hold_up_the_others_of_a_pop() -> None:
    broker, subscriber = Broker(), Subscriber(no_queue("q"))
    broker.found(popped(1), popped(2), popped(3))
    forward = forwarding(broker, subscriber, subscription())
    forward.start()
    await broker.until(lambda: len(broker.acked) == 2)
    await forward.close()
    assert sorted(subscriber.got) == ["id2", "id3"] and [offset for offset, _ in broker.changed] == [1]


async def test_forwarding_goes_on_after_errors_of_brokers_and_of_this_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "_PAUSE_S", 0.001)
    monkeypatch.setattr(fanout, "FOLLOW_S", 0.01)
    broker, subscriber = Broker(), Subscriber(AssertionError("a fault of ours"))
    broker.answers += [UnreachableError("gone"), PopResult(PopStatus.TOO_MANY)]
    broker.found(popped(1))
    broker.found(popped(2))
    forward = forwarding(broker, subscriber, subscription())
    forward.start()
    await broker.until(lambda: broker.acked)
    await forward.close()
    assert subscriber.got == ["id2"], "what the fault left undone is visible again when its lease ends"


async def test_what_was_delivered_beside_an_error_of_this_program_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fanout, "FOLLOW_S", 0.01)
    broker, subscriber = Broker(), Subscriber(AssertionError("a fault of ours"))
    broker.found(popped(1), popped(2), popped(3))
    forward = forwarding(broker, subscriber, subscription())
    forward.start()
    await broker.until(lambda: len(broker.pops) == 2)
    await forward.close()
    assert broker.acked == [2, 3] and subscriber.got == ["id2", "id3"]


async def test_only_subscriptions_that_are_served_here_are_popped() -> None:
    http = TopicSubscription("h", "h" * 16, "http://x")
    gone = TopicSubscription("g", "g" * 16, "", is_deleted=True)
    for push, wanted in ((False, 1), (True, 2)):
        broker = Broker()
        forward = forwarding(broker, Subscriber(), subscription(), http, gone, push=push)
        forward.start()
        await broker.until(lambda broker=broker, wanted=wanted: len(broker.pops) == wanted)
        assert forward.workers == wanted
        await forward.close()


async def test_nothing_is_forwarded_for_a_subscription_that_this_server_ended() -> None:
    broker, subscriber = Broker(), Subscriber()
    forward = forwarding(broker, subscriber, subscription())
    forward.start()
    await broker.until(lambda: broker.pops)
    forward._topics.on_end("t", "s".ljust(16, "0"))
    await asyncio.sleep(0)
    assert forward.workers == 0
    await forward.close()


async def test_a_broker_that_answers_at_once_without_messages_is_not_asked_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fanout, "_PAUSE_S", 3600.0)
    broker = Broker()
    broker.answers = [PopResult(PopStatus.EMPTY, ()) for _ in range(50)]
    forward = forwarding(broker, Subscriber(), subscription())
    forward.start()
    await broker.until(lambda: broker.pops)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(broker.pops) == 1
    await forward.close()
