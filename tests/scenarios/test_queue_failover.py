"""HTTP queues when the master of their group dies: handles, receipts, priorities and numbers go on."""

from __future__ import annotations

import time
from pathlib import Path

from gantry.leaves.frames import Command
from gantry.model import httpqueue
from gantry.wire.bodies import loads
from gantry.wire.codes import RequestCode
from scenarios.test_failover_topics import asked, done, lost
from testkit.brokerplay import send
from testkit.failoverplay import FailoverPlay, playing
from testkit.popplay import ack_request, popped
from testkit.turning import until
from unit.pop.test_queue_over_sockets import QUEUE, made, taken

GROUP = httpqueue.GROUP
DAY_MS = 86_400_000


async def numbers(group: FailoverPlay) -> dict[str, int]:
    (answer,) = await asked(group, Command(RequestCode.QUEUE_STATS, ext={"topic": QUEUE, "consumerGroup": GROUP}))
    return loads(answer.body)  # type: ignore[return-value]


def queue_end(group: FailoverPlay, queue_id: int) -> int:
    parts = group.broker(group.master).parts
    return 0 if parts is None else (parts.store.queue_range(QUEUE, queue_id) or (0, 0))[1]


def another_time(handle: str, delay_ms: int) -> Command:
    return Command(RequestCode.RETIME_DELAYED, ext={"topic": QUEUE, "recallHandle": handle, "delayMs": str(delay_ms)})


async def test_handles_receipts_and_numbers_of_a_queue_go_on_at_the_next_master(tmp_path: Path) -> None:
    async with playing(tmp_path, handover_s=0) as group:
        born_ms = str(int(time.time() * 1000))
        pairs = [{"TIMER_DELAY_MS": str(5 * DAY_MS), "UNIQ_KEY": f"K{number}"} for number in range(4)]
        later = [send(QUEUE, b"later", number, one, g=born_ms) for number, one in enumerate(pairs)]
        await done(group, made(life_s=10 * 86_400), *(send(QUEUE, b"m", queue_id, g=born_ms) for queue_id in (9, 2, 5)))
        first = [one["recallHandle"] for one in await done(group, *later)]
        moved = [one["recallHandle"] for one in await done(group, *(another_time(one, DAY_MS) for one in first[:3]))]
        await done(group, another_time(moved[0], 0))
        (answer,) = await asked(group, taken(1, 600_000))
        (one,) = popped(answer, GROUP)
        assert one.body in (b"m", b"later")
        await until(lambda: queue_end(group, 0) == 1)
        before = await numbers(group)
        assert before == {"active": 3, "inactive": 1, "delayed": 3}
        await lost(group)
        assert await numbers(group) == before
        refused = await asked(group, *(another_time(old, 1) for old in (*first[:3], moved[0])))
        assert [answer.code for answer in refused] == [604] * 4
        await done(group, another_time(moved[1], 0), another_time(first[3], 2 * DAY_MS))
        (answer,) = await asked(group, ack_request(one, group=GROUP))
        assert answer.ext["gantryVerdict"] == "open"
        await until(lambda: queue_end(group, 1) == 1)
        assert await numbers(group) == {"active": 4, "inactive": 0, "delayed": 2}
        (answer,) = await asked(group, taken(16, 600_000))
        ids = [one.queue_id for one in popped(answer, GROUP)]
        assert ids == sorted(ids) and len(ids) == 4
