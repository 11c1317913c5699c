"""A consumer group's member: each order changes the group's account exactly once, however often it is delivered."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import closing
from typing import Any

import redis

from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom
from gantry.guarantee.databases import opened
from gantry.guarantee.idempotent import Idempotent, idempotent
from gantry.guarantee.keys import RedisKeys


async def main(group: str) -> None:
    """Consume until the process ends."""
    dialect, connect = opened(os.environ["DATABASE"])
    address = os.environ.get("REDIS")
    keys = RedisKeys(redis.Redis.from_url(address, socket_timeout=1.0), hold_s=10.0) if address else None

    @idempotent(Idempotent(group, dialect.name, keys=keys), connect)
    def handle(message: ReceivedMessage, connection: Any) -> None:
        cents = json.loads(message.body)["cents"]
        with closing(connection.cursor()) as cursor:
            cursor.execute(
                "UPDATE account SET orders = orders + 1, cents = cents + %s WHERE consumer_group = %s", (cents, group)
            )

    settings = ConsumerSettings(start_from=StartFrom.FIRST, concurrency=4)
    at = os.environ["NAMESRV_ADDR"]
    async with Consumer(group, nameserver=at, subscription={"Orders": "*"}, listener=handle, settings=settings):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
