"""Queues and topics that were missing, or another server made again, while brokers answer and while they do not."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import cast

import pytest

from gantry.client.popped import PoppedMessage
from gantry.client.requests.question import Question
from gantry.errors import GantryError, RefusedError, UnreachableError
from gantry.gateway.brokers import Brokers
from gantry.gateway.signed import SignedTexts
from gantry.model.httpqueue import PRIORITIES
from gantry.model.topic import TopicConfig
from gantry.queues import attributes, faults, table
from gantry.queues.attributes import KnownQueue
from gantry.queues.calls import CallAnswer, QueueCall
from gantry.queues.faults import QueueFaultError
from gantry.queues.handles import QueueHandles
from gantry.queues.queuecalls import QueueCalls, QueueParts
from gantry.queues.settling import QueueSettles
from gantry.queues.table import KnownQueues
from gantry.queues.topictable import KnownTopics
from gantry.schedule import handles as recall_handles
from gantry.wire.codes import ResponseCode
from unit.queues.test_fanout import popped


@pytest.mark.parametrize("kind", [KnownQueues, KnownTopics])
async def test_what_was_missing_is_not_called_missing_while_nobody_answers(
    kind: type[KnownQueues] | type[KnownTopics],
) -> None:
    """A message that is forwarded to such a queue would be given up after a few attempts."""
    answer: GantryError = RefusedError(ResponseCode.TOPIC_NOT_EXIST, "no")

    async def masters() -> dict[str, str]:
        return {"broker-a": "127.0.0.1:1"}

    async def ask(address: str, question: Question[TopicConfig], timeout_s: float) -> TopicConfig:
        raise answer

    doubts: list[None] = []
    session = SimpleNamespace(ask=ask)
    brokers = SimpleNamespace(masters=masters, session=session, doubt_masters=lambda: doubts.append(None))
    known = kind(cast(Brokers, brokers), lambda: 0)
    with pytest.raises(QueueFaultError, match="not exist"):
        await known.get("tea")
    answer = UnreachableError("silent")  # it may have been made meanwhile
    with pytest.raises(UnreachableError):
        await known.get("tea")
    assert doubts, "another master may lead by now"
    await known.close()


HANDLES = QueueHandles(SignedTexts([b"0123456789abcdef"]))
RECALL = recall_handles.encode(recall_handles.Handle("tea", "broker-a", 5, "id"))


class MadeAgain:
    """A server that has read the queue as it was; the broker has what `there` says."""

    def __init__(self) -> None:
        self.old, self.new = (KnownQueue("tea", digit * 16) for digit in "01")
        self.there: KnownQueue | GantryError = self.old
        self.asked: list[str] = []
        self.session = self
        self.doubt_masters = lambda: None
        brokers = cast(Brokers, self)
        self.queues = KnownQueues(brokers, lambda: 0)
        settles = QueueSettles(brokers, HANDLES)
        self.calls = QueueCalls(QueueParts(brokers, HANDLES, self.queues, None, self, settles), lambda: 0)  # type: ignore[arg-type]

    async def masters(self) -> dict[str, str]:
        return {"broker-a": "127.0.0.1:1"}

    async def ask(self, address: str, question: Question[TopicConfig], timeout_s: float) -> TopicConfig:
        if isinstance(self.there, GantryError):
            raise self.there
        return TopicConfig("tea", PRIORITIES, PRIORITIES, attributes=attributes.stored(self.there))

    async def until_done(self, broker: str, *_: object) -> str:
        self.asked.append(broker)
        return RECALL

    async def receive(self, queue: KnownQueue, count: int, wait_s: float) -> list[PoppedMessage]:
        """A long poll, during which another server deletes the queue and makes it again."""
        self.there = self.new
        return [popped(1)]

    async def used(self, method: str, handle: str = "") -> CallAnswer:
        query = {"receipthandle": handle, "visibilitytimeout": "1"}
        body = ""
        if method == "DELETE many":
            query, body = {}, f"<ReceiptHandles><ReceiptHandle>{handle}</ReceiptHandle></ReceiptHandles>"
        verb = method.split()[0]
        try:
            return await self.calls.serve(
                QueueCall(verb, "/", ("queues", "tea", "messages"), query, {}, body.encode(), "", "")
            )
        except GantryError as error:
            return CallAnswer(faults.of_error(error).status)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "DELETE many"])
async def test_handles_of_a_queue_that_another_server_made_again_are_good(method: str) -> None:
    """A commit whose handle is called void counts as done, and its message would be lost."""
    world = MadeAgain()
    assert await world.queues.get("tea") == world.old
    world.there = world.new
    answer = await world.used(method, HANDLES.delayed(world.new, RECALL))
    assert answer.status in (200, 204) and world.asked == ["broker-a"]
    assert (await world.used(method, HANDLES.delayed(world.old, RECALL))).status == 404
    world.there = UnreachableError("silent")
    silent = await world.used(method, HANDLES.delayed(world.old, RECALL))
    assert silent.status == (404 if method == "DELETE many" else 500), "nobody knows whether it is void"
    await world.queues.close()


async def test_a_long_poll_gives_handles_of_the_queue_that_was_made_again_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "_FRESH_S", 0.0)
    world = MadeAgain()
    answer = await world.used("GET")
    (text,) = re.findall("<ReceiptHandle>(.*)</ReceiptHandle>", answer.body.decode())
    assert not HANDLES.is_of_another_time(world.new, text)
    await world.queues.close()
