"""A broker that dies between any two lines of its stop: the next start has everything that was acknowledged."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from gantry.broker.broker import Broker
from gantry.wire.codes import RequestCode
from testkit.brokerplay import bodies, configuration, peer, pull, running_broker, send
from testkit.requests import request

OFFSET = {"consumerGroup": "readers", "topic": "orders", "queueId": 0}
MESSAGES = 40
KILLED = 77


async def live_and_die(folder: Path, line: int) -> None:
    """Serve, be used, begin to stop, and end the process without a word after this line."""

    def passed(number: int) -> None:
        if number == line:
            os._exit(KILLED)

    broker = Broker(configuration(folder, store__flush="SYNC_FLUSH"))
    await broker.start()
    async with peer(broker) as client:
        await client.send(*[send("orders", b"%d" % number) for number in range(MESSAGES)])
        assert [reply.code for reply in await client.receive(MESSAGES)] == [0] * MESSAGES
        await client.call(pull("orders"))
        assert (await client.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=7, **OFFSET))).code == 0
        await broker.stop(passed)


@pytest.mark.parametrize("line", range(1, 10))
def test_the_next_start_has_all_that_was_acknowledged(tmp_path: Path, line: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(live_and_die(tmp_path, line))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED

    async def look() -> None:
        async with running_broker(tmp_path) as broker, peer(broker) as client:
            found: list[bytes] = []
            while len(found) < MESSAGES:
                reply = await client.call(pull("orders", len(found)))
                assert reply.code == 0, reply
                found += bodies(reply)
            assert found == [b"%d" % number for number in range(MESSAGES)]
            assert (await client.call(send("orders", b"next"))).ext["queueOffset"] == str(MESSAGES)
            if line >= 8:
                committed = await client.call(request(RequestCode.QUERY_CONSUMER_OFFSET, **OFFSET))
                assert committed.ext["offset"] == "7", "an orderly stop has saved the offsets"

    asyncio.run(look())
