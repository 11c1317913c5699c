"""The process that `clientcost` measures: one client, and the CPU that it used per message, as one line of JSON.

    python clientload.py {send,iterate,listen} NAMESERVER TOPIC COUNT

CPU is user and kernel time of this process between the first and the last message; connections and routes are there.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom
from gantry.client.producer import Message, Producer

_IN_FLIGHT = 64
_WARM = 2_000  # messages before the measured ones
_BODY = b"x" * 256


class _Meter:
    """CPU and time since the message `begin_at`."""

    def __init__(self) -> None:
        self.seen = 0
        self._cpu_s = self._at_s = 0.0

    def begin(self) -> None:
        """Count from here."""
        self.seen, self._cpu_s, self._at_s = 0, time.process_time(), time.perf_counter()

    def report(self) -> None:
        """Print the figures."""
        cpu_s, took_s = time.process_time() - self._cpu_s, time.perf_counter() - self._at_s
        print(json.dumps({"rate": self.seen / took_s, "cpu_us_per_message": 1e6 * cpu_s / self.seen}), flush=True)


async def _send(nameserver: str, topic: str, count: int) -> None:
    meter = _Meter()
    async with Producer("clientload", nameserver=nameserver) as producer:
        await producer.send(Message(topic, _BODY))
        left = _WARM

        async def sender() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await producer.send(Message(topic, _BODY, tags="paid", keys="order-1"))
                meter.seen += 1

        for wanted in (_WARM, count):
            left = wanted
            meter.begin()
            await asyncio.gather(*(sender() for _ in range(_IN_FLIGHT)))
        meter.report()


def _consumer(nameserver: str, topic: str, listener: object = None) -> Consumer:
    settings = ConsumerSettings(start_from=StartFrom.FIRST)
    return Consumer(
        f"clientload-{time.time_ns()}", nameserver=nameserver, subscription={topic: "*"}, settings=settings,
        listener=listener,  # type: ignore[arg-type]
    )  # fmt: skip


async def _iterate(nameserver: str, topic: str, count: int) -> None:
    meter = _Meter()
    async with _consumer(nameserver, topic) as consumer:
        seen = 0
        async for message in consumer:
            await message.ack()
            seen += 1
            meter.seen += 1
            if seen == _WARM:
                meter.begin()
            elif seen == _WARM + count:
                break
        meter.report()


async def _listen(nameserver: str, topic: str, count: int) -> None:
    meter, seen, done = _Meter(), 0, asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        nonlocal seen
        seen += 1
        meter.seen += 1
        if seen == _WARM:
            meter.begin()
        elif seen == _WARM + count:
            meter.report()
            done.set()

    async with _consumer(nameserver, topic, handle):
        await done.wait()


def main() -> None:
    """Run what the arguments say."""
    play, nameserver, topic, count = sys.argv[1:]
    plays = {"send": _send, "iterate": _iterate, "listen": _listen}
    asyncio.run(plays[play](nameserver, topic, int(count)))


if __name__ == "__main__":
    main()
