"""Every request of the router at its largest: how much memory it takes, and how much of the loop at a time.

Nothing here is a time: memory is counted by tracemalloc, and a step of the loop by the calls it makes, which a busy
machine does not change.  The slow one has four times the usual state; `tests/bench/holds.py` has a hundred times, and
shows how long the steps take.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from gantry.broker.parts import Parts
from gantry.broker.requests.bounds import FIELDS_CHARS_MAX
from gantry.wire.codes import RequestCode
from testkit.brokerplay import running_broker
from testkit.hundredfold import Scale, ask, calls, every, fill

# What a request may keep: the largest are a heartbeat's subscriptions and the locks of 5 000 queues.
KEPT_BYTES_MAX = 4 << 20
# What it may take meanwhile, beside its answer: a parsed body, and the pieces of the answer.
TAKEN_BYTES_MAX = 8 << 20
# A call takes a tenth of a microsecond to a microsecond.
CALLS_MAX = 20_000
CALLS_OF: dict[int, int] = {
    # Reading, checking and registering 2 000 entries in one go, because a heartbeat counts whole or not at all.
    RequestCode.HEART_BEAT: 120_000,
    # The table of where queues end is written again, and the open files are looked through: eight calls a queue.
    RequestCode.DELETE_TOPIC_IN_BROKER: 40_000,
}

TINY = Scale(topics=60, groups=10, members=60)
SMALL = Scale(topics=400, groups=50, members=400)
SETTINGS: dict[str, Any] = {"store__index_entries": 200_000, "topics__topics_max": 50_000, "topics__groups_max": 50_000}


async def measured(parts: Parts, scale: Scale) -> None:
    await fill(parts, scale)
    for code, command in every(scale, parts.router.codes()).items():
        name = RequestCode(code).name
        tracemalloc.start()
        try:
            with calls() as most:
                replies = await ask(parts, command)
            answers = sum(len(one.body) for one in replies)
            remarks = sum(len(one.remark or "") for one in replies)
            _, peak = tracemalloc.get_traced_memory()
            replies.clear()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept <= KEPT_BYTES_MAX, f"{name} keeps {kept} bytes"
        assert peak <= TAKEN_BYTES_MAX + 6 * answers, f"{name} takes {peak} bytes for an answer of {answers}"
        assert remarks <= 2 * FIELDS_CHARS_MAX, f"{name} says {remarks} characters"
        assert most[0] <= CALLS_OF.get(code, CALLS_MAX), f"{name}: a step of the loop makes {most[0]} calls"


@pytest.mark.parametrize("scale", [TINY, pytest.param(SMALL, marks=pytest.mark.slow)], ids=["tiny", "small"])
async def test_no_request_takes_much_memory_or_much_of_the_loop_at_a_time(tmp_path: Path, scale: Scale) -> None:
    async with running_broker(tmp_path, **SETTINGS) as broker:
        assert broker.parts is not None
        await measured(broker.parts, scale)
