"""How long `gantry lag` takes from its start to its end, for 500 topics of eight queues that one group consumes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from servers import gantry

from gantry.client.producer import Message, Producer
from gantry.client.requests import admin_requests, questions
from gantry.model.route import MessageQueue
from gantry.model.subscription import GroupConfig
from gantry.model.topic import TopicConfig
from gantry.transport.client import RemotingClient

if TYPE_CHECKING:
    from scenarios import Bench, Row

_TOPICS, _QUEUES, _RUNS = 500, 8, 5
_TIMEOUT_S = 60.0


def lag(bench: Bench) -> list[Row]:
    """The median of a few runs of the command."""
    with gantry(bench.folder / "lag") as server:
        asyncio.run(fill(f"127.0.0.1:{server.port}", f"127.0.0.1:{server.nameserver_port}"))
        command = [sys.executable, "-m", "gantry.cli.main", "lag", "--output", "json"]
        environment = {**os.environ, "NAMESRV_ADDR": f"127.0.0.1:{server.nameserver_port}"}
        times = []
        for _ in range(_RUNS):
            begun = time.monotonic()
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            times.append(time.monotonic() - begun)
            assert done.stdout.count('"committed"') == _TOPICS * _QUEUES
    times.sort()
    return [{"scenario": f"gantry lag, {_TOPICS} topics x {_QUEUES} queues", "ms": round(times[_RUNS // 2] * 1000)}]


async def fill(broker: str, nameserver: str) -> None:
    """500 topics of eight queues with a message each, and one group that has consumed them."""
    remoting = RemotingClient()
    await remoting.invoke(broker, admin_requests.put_group(GroupConfig("lagging")).command, _TIMEOUT_S)
    names = [f"topic-{number}" for number in range(_TOPICS)]
    for name in names:
        made = admin_requests.put_topic(TopicConfig(name, _QUEUES, _QUEUES))
        await remoting.invoke(broker, made.command, _TIMEOUT_S)
    async with Producer("lag", nameserver=nameserver) as producer:
        for name in names:
            await asyncio.gather(*(producer.send(Message(name, b"x")) for _ in range(_QUEUES)))
            for queue_id in range(_QUEUES):
                told = questions.commit("lagging", MessageQueue(name, "broker-a", queue_id), 1)
                await remoting.invoke(broker, told.command, _TIMEOUT_S)
    await remoting.close()
