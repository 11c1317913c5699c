"""A name server and broker in one that keep nothing: every topic is here, and every message is acknowledged at once.

What a sink needs without the work of a broker, for a figure about the sink.  Prints `ready PORT` and serves until it
is killed.
"""

from __future__ import annotations

import asyncio

import uvloop

from gantry.leaves.frames import encode
from gantry.model.route import BrokerData, QueueData, TopicRoute
from gantry.transport.connection import Connection
from gantry.transport.server import RemotingServer
from gantry.wire.bodies import dumps
from gantry.wire.codes import RequestCode
from gantry.wire.command import Request, reply

_QUEUES = 8


class Answering:
    """Says where every topic is, and yes to everything else."""

    def __init__(self) -> None:
        self._route = b""

    async def serve(self) -> None:
        """Until it is killed."""
        server = RemotingServer(self._answer)
        port = await server.start("127.0.0.1", 0)
        brokers = (BrokerData("c", "broker-a", {0: f"127.0.0.1:{port}"}),)
        self._route = dumps(TopicRoute((QueueData("broker-a", _QUEUES, _QUEUES, 6),), brokers).to_json())
        print(f"ready {port}", flush=True)
        await asyncio.Event().wait()

    def _answer(self, connection: Connection, requests: list[Request]) -> None:
        for request in requests:
            if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                answer = reply(request, body=self._route)
            else:
                answer = reply(request, ext={"msgId": "0A" * 16, "queueId": "0", "queueOffset": "7"})
            connection.write(encode(answer))


if __name__ == "__main__":
    uvloop.run(Answering().serve())
