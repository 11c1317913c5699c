"""The order service of the demonstration: every order is a row in its database and a message about it, both or neither.

    python order_service.py --namesrv HOST:PORT --ledger DIR --number N --orders N --per-second R [--die WHERE --at N]

It places the orders that are not in the database yet, at a steady pace, each in a transaction: half message, row,
commit.  With --die it ends by SIGKILL in the middle of its n-th order: `after-half`, before the row is committed, or
`after-row`, before the broker is told.  Anyone who comes next finds the same database and goes on; what its predecessor
left open the broker asks it about, and the answer is whether the row is there.

    orders.db          orders(number, message_id, crc)             the truth
    acknowledged.csv   order,message_id,latency_ms,at_ms           when the broker had confirmed the end
    asked-N.csv        message_id,answer                           what the checker of service N said

It stays, to answer checks, until SIGTERM.  Progress goes to stdout, a line of JSON now and then.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import itertools
import json
import os
import signal
import sqlite3
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TextIO

from gantry.client.producer import ProducerSettings
from gantry.client.transaction import (
    Message,
    Outcome,
    StoredMessage,
    TransactionProducer,
    TransactionSettings,
)
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError

GROUP = "order-service"
TOPIC = "Orders"
ORDERS = Path(__file__).with_name("orders.csv")
PATIENCE_S = 60.0  # one half with all its retries
PAUSE_S = 0.2  # before an order whose half has an unknown outcome is begun again
UNDER_WAY_MAX = 500
REPORT_EVERY_S = 0.2


class Database:
    """The orders that there are, with the message that belongs to each."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)
        # Safe when the process is killed; a commit that outlives a power cut would be synchronous=FULL.
        self._connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;")
        with self._connection:
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS orders (number TEXT PRIMARY KEY, message_id TEXT UNIQUE, crc INTEGER)"
            )

    def close(self) -> None:
        """Close the connection; every row is committed already."""
        self._connection.close()

    def place(self, number: str, message_id: str, crc: int) -> None:
        """The local transaction: the row is there when this returns."""
        with self._connection:
            self._connection.execute("INSERT INTO orders VALUES (?, ?, ?)", (number, message_id, crc))

    def numbers(self) -> set[str]:
        """The orders that need not be placed any more."""
        return {row[0] for row in self._connection.execute("SELECT number FROM orders")}

    def has(self, message_id: str) -> bool:
        """Whether the local transaction of a message happened."""
        row = self._connection.execute("SELECT 1 FROM orders WHERE message_id = ?", (message_id,)).fetchone()
        return row is not None


class OrderService:
    """Places orders and answers for those that nobody knows the end of."""

    def __init__(self, database: Database, acknowledged: TextIO, asked: TextIO, die: str, die_at: int) -> None:
        self.begun_count = 0
        self.row_count = len(database.numbers())
        self._database = database
        self._acknowledged = acknowledged
        self._asked = asked
        self._die = die
        self._die_at = die_at

    async def check(self, message: StoredMessage) -> Outcome:
        """The broker asks: did it happen?"""
        outcome = Outcome.COMMIT if self._database.has(message.message_id) else Outcome.ROLLBACK
        print(f"{message.message_id},{outcome.name.lower()}", file=self._asked, flush=True)
        return outcome

    async def place(self, producer: TransactionProducer, order: dict[str, str]) -> None:
        """One order, however often it has to be begun."""
        number, body = order["order"], json.dumps(order, ensure_ascii=False).encode()
        self.begun_count += 1
        nth = self.begun_count
        begun = time.monotonic()
        while True:
            tx = producer.transaction(Message(TOPIC, body, tags=order["payment"], keys=(number,)))
            try:
                async with tx:
                    self._die_if_told("after-half", nth)
                    self._database.place(number, tx.message_id, zlib.crc32(body))
                    self._die_if_told("after-row", nth)
                break
            except (RefusedError, UnreachableError, OutcomeUnknownError):
                if tx.half is not None:  # the row is there and its message was refused: nothing to repeat
                    raise
                await asyncio.sleep(PAUSE_S)
        self.row_count += 1
        took_ms = (time.monotonic() - begun) * 1000
        line = f"{number},{tx.message_id},{took_ms:.2f},{time.time_ns() // 1_000_000}"
        print(line, file=self._acknowledged, flush=True)

    def report(self) -> None:
        """A line for anyone who watches."""
        print(json.dumps({"rows": self.row_count}), flush=True)

    def _die_if_told(self, where: str, nth: int) -> None:
        if self._die == where and nth == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)


def orders(count: int) -> Iterator[dict[str, str]]:
    """The orders of the day, and of the days after it, until there are enough."""
    with ORDERS.open(newline="", encoding="utf-8") as lines:
        of_a_day = list(csv.DictReader(lines))
    endless = ({**order, "order": f"{day}-{order['order']}"} for day in itertools.count(1) for order in of_a_day)
    return itertools.islice(endless, count)


async def run(arguments: argparse.Namespace) -> None:
    """Place what is missing at the pace that was asked for, then stay for checks."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    settings = TransactionSettings(ProducerSettings(timeout_s=PATIENCE_S, attempt_timeout_s=2.0))
    with (
        closing(Database(arguments.ledger / "orders.db")) as database,
        (arguments.ledger / "acknowledged.csv").open("a", encoding="utf-8") as acknowledged,
        (arguments.ledger / f"asked-{arguments.number}.csv").open("w", encoding="utf-8") as asked,
    ):
        service = OrderService(database, acknowledged, asked, arguments.die, arguments.at)
        reporter = asyncio.create_task(_report(service))
        async with TransactionProducer(
            GROUP, service.check, nameserver=arguments.namesrv, settings=settings
        ) as producer:
            print("ready", flush=True)
            done = database.numbers()
            missing = (order for order in orders(arguments.orders) if order["order"] not in done)
            await _place(service, producer, arguments, missing)
            await stopping.wait()
        reporter.cancel()


async def _place(
    service: OrderService,
    producer: TransactionProducer,
    arguments: argparse.Namespace,
    missing: Iterator[dict[str, str]],
) -> None:
    async with asyncio.TaskGroup() as under_way:
        places = asyncio.Semaphore(UNDER_WAY_MAX)
        begun = time.monotonic()
        for nth, order in enumerate(missing):
            await asyncio.sleep(max(0.0, begun + nth / arguments.per_second - time.monotonic()))
            await places.acquire()
            task = under_way.create_task(service.place(producer, order))
            task.add_done_callback(lambda _: places.release())


async def _report(service: OrderService) -> None:
    while True:
        await asyncio.sleep(REPORT_EVERY_S)
        service.report()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Place orders; see the module's text.")
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--number", required=True)
    parser.add_argument("--orders", type=int, default=12_000)
    parser.add_argument("--per-second", type=float, default=800.0)
    parser.add_argument("--die", choices=("never", "after-half", "after-row"), default="never")
    parser.add_argument("--at", type=int, default=0, help="in the middle of the n-th order of this process")
    asyncio.run(run(parser.parse_args()))
