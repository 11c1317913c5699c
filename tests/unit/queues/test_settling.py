"""Deletes by handle, while a broker does not answer."""

from __future__ import annotations

import asyncio
from typing import cast

from gantry.client.requests.question import Question
from gantry.errors import OutcomeUnknownError, UnreachableError
from gantry.gateway.brokers import Brokers
from gantry.gateway.signed import SignedTexts
from gantry.queues.attributes import KnownQueue
from gantry.queues.handles import QueueHandles
from gantry.queues.settling import QueueSettles
from gantry.schedule import handles as recall_handles
from testkit.turning import until

QUEUE = KnownQueue("Tea", "0123456789abcdef")


class SilentBroker:
    """Answers nothing until it is let go."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = asyncio.Event()

    async def until_done(
        self, broker: str, question: Question[object], within_s: float, only_if_unsent: bool = False
    ) -> object:
        self.asked += 1
        number = self.asked
        await self.gate.wait()
        if number == 3:
            raise UnreachableError(f"{broker}: gone")
        return ""


async def test_deletes_of_many_delayed_messages_wait_for_a_broker_together() -> None:
    broker, handles = SilentBroker(), QueueHandles(SignedTexts([b"k" * 16]))
    settles = QueueSettles(cast(Brokers, broker), handles)
    recalls = [recall_handles.encode(recall_handles.Handle("Tea", "a", 5, f"id{number}")) for number in range(16)]
    call = asyncio.ensure_future(settles.delete_all(QUEUE, [handles.delayed(QUEUE, one) for one in recalls]))
    await until(lambda: broker.asked == 16)
    broker.gate.set()
    results = await call
    assert isinstance(results[2], (UnreachableError, OutcomeUnknownError))
    assert [one for number, one in enumerate(results) if number != 2] == [None] * 15
