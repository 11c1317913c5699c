"""A consumer is killed while the first of a hundred messages is still in work: the group's progress stays before it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from gantry.client.admin import Admin
from gantry.client.consumer import Consumer, ConsumerSettings, StartFrom
from gantry.client.producer import Message, Producer
from testkit.clusterplay import running_cluster
from testkit.patience import HANG_S
from testkit.turning import until

COUNT = 100
FIRST = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=1.0)

# Works on everything but the first message, which it never ends; says so, and waits to be killed.
VICTIM = """
import asyncio, sys
from gantry.client.consumer import Consumer, ConsumerSettings, StartFrom

async def main():
    settings = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=1.0)
    async with Consumer("g", nameserver=sys.argv[1], subscription={"T": "*"}, settings=settings) as consumer:
        for _ in range(int(sys.argv[2])):
            message = await anext(consumer)
            if message.queue_offset:
                await message.ack()
        await consumer.commit()
        print("done", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_progress_stays_before_what_was_in_work_and_it_comes_again(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.create_topic("T", queues=1)
            async with Producer("p", nameserver=cluster.nameserver) as producer:
                ids = [(await producer.send(Message("T", b"%d" % number))).message_id for number in range(COUNT)]
            await asyncio.to_thread(let_die, cluster.nameserver)
            await until(lambda: not cluster.brokers["broker-a"].parts.clients.consumers("g"))
            (progress,) = await admin.progress("g", "T")
            assert (progress.committed, progress.max_offset) == (0, COUNT)
        async with Consumer("g", nameserver=cluster.nameserver, subscription={"T": "*"}, settings=FIRST) as heir:
            received = [await anext(heir) for _ in range(COUNT)]
            assert [message.message_id for message in received] == ids
            for message in received:
                await message.ack()
            await heir.commit()


def let_die(nameserver: str) -> None:
    """Run the victim until it has done its work, then kill it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM, nameserver, str(COUNT)], stdout=subprocess.PIPE, env=environment, text=True
    ) as victim:
        try:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "done\n"
        finally:
            victim.kill()
