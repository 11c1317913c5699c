"""Orders that cross each other leave a member as they found it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from gantry.broker.group.orders import Orders
from gantry.broker.role.slave_role import SlaveRole
from gantry.replication.register import RegisterError


async def test_a_member_that_is_ordered_twice_at_once_to_be_cloned_and_refuses_goes_on_following() -> None:
    asked = asyncio.Event()

    class Away:
        async def read(self) -> None:
            await asked.wait()
            raise RegisterError("the register does not answer")

    group = SlaveRole.__new__(SlaveRole)
    group.is_reshaping, group._connector = False, None
    member = SimpleNamespace(me=SimpleNamespace(member="1.0"), place=1)
    ground = SimpleNamespace(member=member)
    orders = Orders(None, group, ground, None, Away(), lambda why: None)  # type: ignore[arg-type]
    waiting = [asyncio.create_task(orders.clone()) for _ in range(2)]
    await asyncio.sleep(0)
    assert group.is_reshaping, "it must not join while the register is asked"
    asked.set()
    answers = await asyncio.gather(*waiting)
    assert sorted(answer.status for answer in answers if answer is not None) == [409, 503]
    assert not group.is_reshaping
