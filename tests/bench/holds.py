"""How long each request holds the event loop of a broker with a hundred times the usual state.

    PYTHONPATH=tests python tests/bench/holds.py [folder]

10 000 topics with eight queues each, 1 000 groups, two offsets for each queue, 10 000 members in one group.  `hold` is
the longest step of the loop while the request was under way, in CPU of the loop's thread; `took` is wall time until its
answer was there.  Nothing is asserted: the machine decides.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from testkit.brokerplay import running_broker
from testkit.hundredfold import Scale, ask, fill, holds, largest


async def measure(folder: Path) -> list[tuple[str, int, float, float, int]]:
    """(request, code of the reply, hold in ms, took in ms, bytes of the reply), the longest hold first."""
    scale = Scale(topics=int(sys.argv[2]), groups=100, members=1000) if len(sys.argv) > 2 else Scale()
    limits = {"topics__topics_max": 50_000, "topics__groups_max": 50_000}
    rows = []
    async with running_broker(folder, store__index_slots=1000, store__index_entries=1_000_000, **limits) as broker:
        assert broker.parts is not None
        await fill(broker.parts, scale)
        for code, command in largest(scale).items():
            begun = time.perf_counter()
            with holds() as steps:
                replies = await ask(broker.parts, command)
            hold_ms, took_ms = max(steps) * 1000, (time.perf_counter() - begun) * 1000
            body = sum(len(one.body) for one in replies)
            rows.append((code.name, replies[0].code if replies else -1, hold_ms, took_ms, body))
    return sorted(rows, key=lambda row: -row[2])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as made:
        print(f"{'request':40} {'code':>4} {'hold ms':>9} {'took ms':>9} {'bytes':>10}")
        for name, answer, held, lasted, size in asyncio.run(measure(Path(made))):
            print(f"{name:40} {answer:4} {held:9.2f} {lasted:9.1f} {size:10}")
