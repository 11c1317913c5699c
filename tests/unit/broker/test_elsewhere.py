"""Other brokers are asked by a bounded number of questions, and who comes together waits for its turn."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from gantry.broker.elsewhere import ProgressElsewhere
from testkit.simclock import SimClock


class Others:
    """Name servers and another broker, on which every group reads since 5 ms."""

    def __init__(self) -> None:
        self.under_way = self.most = self.asked = 0

    async def route(self, topic: str) -> Any:
        names = [SimpleNamespace(broker_name="b")]
        return SimpleNamespace(queues=names, brokers=[SimpleNamespace(broker_name="b", addresses={0: "there"})])

    async def invoke(self, address: str, question: Any, within_s: float) -> Any:
        self.asked += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        return SimpleNamespace(ext={"gantryBegan": "5"})


async def test_hundreds_of_groups_that_start_together_are_all_told_since_when_they_read() -> None:
    others: Any = Others()
    elsewhere = ProgressElsewhere(others, others, "a", SimClock())
    found = await asyncio.gather(*(elsewhere.began_ms(f"g{number}", "T") for number in range(300)))
    assert found == [5] * 300
    assert (others.asked, others.most) == (300, 32)


async def test_who_wants_the_same_shares_one_question_and_its_answer_for_a_while() -> None:
    others: Any = Others()
    elsewhere = ProgressElsewhere(others, others, "a", SimClock())
    assert await asyncio.gather(*(elsewhere.began_ms("g", "T") for _ in range(100))) == [5] * 100
    assert await elsewhere.began_ms("g", "T") == 5
    assert others.asked == 1
