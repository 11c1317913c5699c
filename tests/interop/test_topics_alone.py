"""Apache's name servers know a new topic of our broker at once, also those that cannot register a topic by itself."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from gantry.broker.complaints import Complaints
from gantry.broker.registration import RegistrationTask
from gantry.broker.registration_body import BrokerIdentity
from gantry.leaves.frames import Command
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.topic import TopicConfig
from gantry.transport.client import RemotingClient
from gantry.wire.codes import RequestCode
from interop import prepare
from interop.servers import Apache, rpc
from testkit.memory_state import MemoryState
from testkit.simclock import SimClock
from testkit.turning import until


class Listening(RemotingClient):
    """A client that notes what is asked and what is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []

    async def invoke(self, address: str, command: Command, timeout_s: float) -> Command:
        answer = await super().invoke(address, command, timeout_s)
        self.seen.append((command.code, answer.code))
        return answer


@pytest.mark.parametrize("version", prepare.JAVA_VERSIONS)
async def test_a_new_topic_has_a_route_at_once(version: str, tmp_path: Path) -> None:
    apache = Apache(version, tmp_path, tmp_path / "none")
    apache.start_name_server()
    client, clock = Listening(), SimClock()
    topics = Topics(MemoryState(), clock, TopicSettings("b", "c"))
    identity = BrokerIdentity("c", "b", 0, "127.0.0.1:10911", "127.0.0.1:10912")
    complaints = Complaints(logging.getLogger("test"), clock)
    task = RegistrationTask(client, (apache.name_server,), identity, topics, complaints)
    topics.on_change(task.topic_changed)
    running = asyncio.ensure_future(task.run())
    try:
        await until(lambda: task.is_registered[apache.name_server])
        client.seen.clear()
        topics.put(TopicConfig("orders", 2, 3))
        await task.caught_up()
        header, body = await asyncio.to_thread(rpc, apache.name_server, 105, {"topic": "orders"})
        assert header["code"] == 0, header
        (queues,) = json.loads(body)["queueDatas"]
        assert (queues["brokerName"], queues["readQueueNums"], queues["writeQueueNums"]) == ("b", 2, 3)
        code = RequestCode.REGISTER_TOPIC_IN_NAMESRV if version == "5.x" else RequestCode.REGISTER_BROKER
        assert client.seen == [(code, 0)]
    finally:
        running.cancel()
        await asyncio.wait({running})
        await client.close()
        apache.close()
