"""A producer that writes down what it was told SEND_OK for.

    ledgerproducer.py NAMESERVER TOPIC PREFIX FILE [PAUSE_MS]

Several sends are under way at once.  What was refused or has an unknown outcome is sent again under a new body, so that
a body that is found twice was stored twice.  SIGTERM ends it after what is under way.

A line is `body,milliseconds,queue,offset`.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import time
from typing import TextIO

from gantry.client.producer import Message, Producer, ProducerSettings
from gantry.errors import GantryError

LANES = 4


async def run(name_server: str, topic: str, prefix: str, ledger: TextIO, pause_ms: float) -> None:
    """Send until told to stop."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    numbers = itertools.count()
    settings = ProducerSettings(timeout_s=3.0, attempt_timeout_s=1.0)
    async with Producer(f"producer-{prefix}", nameserver=name_server, settings=settings) as producer:

        async def lane() -> None:
            while not stopping.is_set():
                body = f"{prefix}-{next(numbers):07d}"
                try:
                    sent = await producer.send(Message(topic, body.encode()))
                except GantryError as error:
                    print(f"{time.time():.3f} {body}: {error!r}"[:300], flush=True)
                    await asyncio.sleep(0.05)
                    continue
                line = f"{body},{time.time_ns() // 1_000_000},{sent.queue.queue_id},{sent.queue_offset}"
                print(line, file=ledger, flush=True)
                await asyncio.sleep(pause_ms / 1000)

        await asyncio.gather(*(lane() for _ in range(LANES)))


if __name__ == "__main__":
    with open(sys.argv[4], "a", encoding="ascii") as book:
        asyncio.run(run(*sys.argv[1:4], book, float(sys.argv[5]) if len(sys.argv) > 5 else 5.0))
