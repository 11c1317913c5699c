"""What many queues cost a start and a promotion: CPU of one process with 1 500 topics of eight queues.

The member is a real broker in this process, with a register file, a coordinator and another member whose disk is empty.
Its folder is filled by a broker without a group before: each queue has one message.  So the register is made again, and
the member with the messages leads.  Measured is the CPU of the whole process (its threads too) from the
call until the member answers, and from the coordinator's decision until the member takes messages.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scenarios import Bench, Row

_TESTS = Path(__file__).resolve().parent.parent
_TOPICS = int(os.environ.get("BENCH_OPENING_TOPICS", "1500"))
_QUEUES = 8
_SMALL = {"store__queue_file_entries": 100, "store__segment_bytes": 64 << 20}


def openings(bench: Bench) -> list[Row]:
    """CPU seconds of an opening and of a promotion."""
    if str(_TESTS) not in sys.path:
        sys.path.insert(0, str(_TESTS))
    folder = bench.folder / "openings"
    folder.mkdir()
    asyncio.run(_fill(folder / "member-0"))
    opened_s, promoted_s = asyncio.run(_measure(folder))
    many = f"{_TOPICS} topics x {_QUEUES} queues"
    return [
        {"figure": f"opening a store, {many}", "cpu_s": round(opened_s, 2), "target": "what it is"},
        {"figure": f"promotion of a member, {many}", "cpu_s": round(promoted_s, 2), "target": "< 1 s"},
    ]


async def _fill(folder: Path) -> None:
    from gantry.model.topic import TopicConfig
    from testkit.brokerplay import running_broker
    from testkit.smallstore import message

    async with running_broker(folder, **_SMALL) as broker:
        parts = broker.parts
        assert parts is not None
        for number in range(_TOPICS):
            name = f"topic-with-a-name-of-usual-length-{number}"
            parts.topics.put(TopicConfig(name, read_queues=_QUEUES, write_queues=_QUEUES))
            parts.store.append([message(name, queue_id) for queue_id in range(_QUEUES)])
            await asyncio.sleep(0)


async def _measure(folder: Path) -> tuple[float, float]:
    from gantry.failover.decide import Promote
    from gantry.nameserver.server import NameServer
    from gantry.nameserver.settings import NameServerSettings
    from testkit.failoverplay import FailoverPlay
    from testkit.turning import until

    names = NameServer(NameServerSettings("127.0.0.1", 0, http_port=None))
    await names.start()
    play = FailoverPlay(folder, names, "ASYNC_MASTER", 2, 0.0, **_SMALL)
    member, other = play.processes
    try:
        begun_s = time.process_time()
        member.start()
        await until(lambda: member.broker is not None)
        opened_s = time.process_time() - begun_s
        other.start()
        play.watch()
        await until(lambda: any(isinstance(told, Promote) for told in play.told))
        begun_s = time.process_time()
        await until(play.takes_writes)
        return opened_s, time.process_time() - begun_s
    finally:
        await play.end()
        await names.stop()
