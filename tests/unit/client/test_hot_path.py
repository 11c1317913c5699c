"""What a received message costs the client over real sockets, in calls of Python functions of our own code.

Sends, and listeners without a network, are ways of `tests/unit/broker/test_hot_ways.py`.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom
from gantry.client.producer import Message, Producer
from testkit.clusterplay import running_cluster
from testkit.patience import HANG_S

_COUNT = 256
# The broker runs in the same process, and uses others of these packages as well.
_CLIENT = ("gantry.client", "gantry.model.message", "gantry.model.ids", "gantry.transport.unanswered")


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count calls of the client's functions; steps of a coroutine count each."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            name = frame.f_globals.get("__name__", "")
            if name.startswith(_CLIENT):
                found[f"{name}.{frame.f_code.co_name}"] += 1

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


async def test_consuming_a_message_takes_few_calls(tmp_path: Path) -> None:
    settings = ConsumerSettings(start_from=StartFrom.FIRST, handover_s=0.0)
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        async with Producer("p", nameserver=cluster.nameserver) as producer:
            for _ in range(2):
                await producer.send_batch([Message("T", b"x" * 100, tags="t")] * _COUNT)
        seen = 0
        consumer = Consumer("g", nameserver=cluster.nameserver, subscription={"T": "*"}, settings=settings)
        async with consumer:
            with counted() as calls:
                async for message in consumer:
                    await message.ack()
                    seen += 1
                    if seen == 2 * _COUNT:
                        break
    each = calls.total() / (2 * _COUNT)
    assert 5 < each <= 17, f"{each:.1f} calls a message: {calls.most_common(30)}"


async def test_a_listener_costs_one_task_a_message(tmp_path: Path) -> None:
    settings = ConsumerSettings(start_from=StartFrom.FIRST, handover_s=0.0)
    tasks: set[asyncio.Task[None] | None] = set()
    done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        if len(tasks) == _COUNT:
            done.set()

    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        async with Producer("p", nameserver=cluster.nameserver) as producer:
            await producer.send_batch([Message("T", b"x" * 100, tags="t")] * _COUNT)
        consumer = Consumer(
            "g", nameserver=cluster.nameserver, subscription={"T": "*"}, listener=handle, settings=settings
        )
        async with consumer:
            with counted() as calls:
                await done.wait()
    each = calls.total() / _COUNT
    assert 5 < each <= 31, f"{each:.1f} calls a message: {calls.most_common(30)}"
