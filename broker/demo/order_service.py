"""The order service of the demonstration: every order becomes a message, and none is forgotten.

    python order_service.py --namesrv HOST:PORT --ledger DIR --orders N --per-second R

It sends at a steady pace, and an order is done when the broker has said SEND_OK: a broker that is down makes it
wait, not lose.  When an attempt ends without an answer the order may or may not have been stored, so the producer
sends it again under the same message id; the account at the end counts how often that was one too many.
Two ledgers tell what happened (see account.py).  Progress goes to stdout, a line of JSON now and then.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import itertools
import json
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from gantry.client.producer import Message, Producer, ProducerSettings

TOPIC = "Orders"
ORDERS = Path(__file__).with_name("orders.csv")
PATIENCE_S = 60.0  # one send with all its retries
UNDER_WAY_MAX = 500
REPORT_EVERY_S = 0.2


class OrderService:
    """Sends orders and writes down what became of each."""

    def __init__(self, producer: Producer, sent: TextIO, acknowledged: TextIO) -> None:
        self.sent_count = 0
        self.acknowledged_count = 0
        self._producer = producer
        self._sent = sent
        self._acknowledged = acknowledged

    async def place(self, order: dict[str, str]) -> None:
        """Send one order until it is acknowledged; each ledger line is written before the next step begins."""
        body = json.dumps(order, ensure_ascii=False).encode()
        message = Message(TOPIC, body, tags=order["payment"], keys=(order["order"],))
        print(f"{order['order']},{zlib.crc32(body)}", file=self._sent, flush=True)
        self.sent_count += 1
        begun = time.monotonic()
        result = await self._producer.send(message)
        took_ms = (time.monotonic() - begun) * 1000
        line = f"{order['order']},{result.message_id},{took_ms:.2f},{time.time_ns() // 1_000_000}"
        print(line, file=self._acknowledged, flush=True)
        self.acknowledged_count += 1

    def report(self) -> None:
        """A line for whoever watches."""
        print(json.dumps({"sent": self.sent_count, "acknowledged": self.acknowledged_count}), flush=True)


def orders(count: int) -> Iterator[dict[str, str]]:
    """The orders of the day, and of the days after it, until there are enough."""
    with ORDERS.open(newline="", encoding="utf-8") as lines:
        of_a_day = list(csv.DictReader(lines))
    endless = ({**order, "order": f"{day}-{order['order']}"} for day in itertools.count(1) for order in of_a_day)
    return itertools.islice(endless, count)


async def run(arguments: argparse.Namespace) -> None:
    """Place all orders at the pace that was asked for."""
    settings = ProducerSettings(timeout_s=PATIENCE_S, attempt_timeout_s=2.0)
    with (
        (arguments.ledger / "sent.csv").open("w", encoding="utf-8") as sent,
        (arguments.ledger / "acknowledged.csv").open("w", encoding="utf-8") as acknowledged,
    ):
        async with Producer("order-service", nameserver=arguments.namesrv, settings=settings) as producer:
            service = OrderService(producer, sent, acknowledged)
            reporter = asyncio.create_task(_report(service))
            async with asyncio.TaskGroup() as under_way:
                places = asyncio.Semaphore(UNDER_WAY_MAX)
                begun = time.monotonic()
                for number, order in enumerate(orders(arguments.orders)):
                    await asyncio.sleep(max(0.0, begun + number / arguments.per_second - time.monotonic()))
                    await places.acquire()
                    task = under_way.create_task(service.place(order))
                    task.add_done_callback(lambda _: places.release())
            reporter.cancel()
            service.report()


async def _report(service: OrderService) -> None:
    while True:
        service.report()
        await asyncio.sleep(REPORT_EVERY_S)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Send orders; see the module's text.")
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--orders", type=int, default=12_000)
    parser.add_argument("--per-second", type=float, default=800.0)
    asyncio.run(run(parser.parse_args()))
