"""The account of the demonstration with Spark: every order of the ledger is archived once and counted once.

    orders.db     the order service's database: the truth (broker/demo/order_service.py)
    archive       message ids in Parquet (`archived`)
    revenue.db    orders and cents per minute, and the batches that wrote them (`pipeline`)

    not archived, unknown, archived twice     ids of the ledger and of the archive, compared
    wrong minutes                             minutes whose orders or cents are not those of the ledger's orders
"""

from __future__ import annotations

import csv
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Minutes = dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Counted:
    """What was compared, and how it came out."""

    rows: int
    archived: int
    not_archived: list[str]
    unknown: list[str]
    twice: list[str]
    counted: int
    cents: int
    cents_of_ledger: int
    wrong_minutes: list[str]
    batches: int

    @property
    def is_good(self) -> bool:
        """Whether every order is there exactly once, in both."""
        return not (self.not_archived or self.unknown or self.twice or self.wrong_minutes)


def count(folder: Path, orders_csv: Path, archived: Sequence[str]) -> Counted:
    """Compare what is in a folder with the ids that the archive holds."""
    ledger = {message_id: number for number, message_id in _rows(folder / "orders.db", "number, message_id", "orders")}
    expected = minutes_of(ledger.values(), orders_csv)
    revenue = _rows(folder / "revenue.db", "minute, orders, cents", "revenue")
    found: Minutes = {minute: (orders, cents) for minute, orders, cents in revenue}
    often = Counter(archived)
    return Counted(
        rows=len(ledger),
        archived=len(often),
        not_archived=sorted(number for message_id, number in ledger.items() if message_id not in often),
        unknown=sorted(often.keys() - ledger.keys()),
        twice=sorted(message_id for message_id, times in often.items() if times > 1),
        counted=sum(orders for orders, _ in found.values()),
        cents=sum(cents for _, cents in found.values()),
        cents_of_ledger=sum(cents for _, cents in expected.values()),
        wrong_minutes=sorted(m for m in found.keys() | expected.keys() if found.get(m) != expected.get(m)),
        batches=len(_rows(folder / "revenue.db", "number", "batches")),
    )


def minutes_of(numbers: Iterable[str], orders_csv: Path) -> Minutes:
    """Orders and cents per minute, of the orders with these numbers (DAY-NUMBER)."""
    with orders_csv.open(newline="", encoding="utf-8") as lines:
        of_a_day = {row["order"]: row for row in csv.DictReader(lines)}
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for number in numbers:
        order = of_a_day[number.partition("-")[2]]
        entry = sums[order["placed_at"][:5]]
        entry[0] += 1
        entry[1] += int(order["quantity"]) * int(order["unit_price_cents"])
    return {minute: (orders, cents) for minute, (orders, cents) in sums.items()}


def _rows(database: Path, columns: str, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(f"SELECT {columns} FROM {table}").fetchall()


def closing_table(counted: Counted, folder: Path) -> str:
    """The account with, for each row, how to see it oneself."""
    orders, revenue = f"sqlite3 {folder}/orders.db", f"sqlite3 {folder}/revenue.db"
    audit = ".venv-spark/bin/python -m pyspark_gantrymq.jobs.audit"
    rows = [
        ("orders in the ledger", f"{counted.rows}", f"{orders} 'select count(*) from orders'"),
        ("messages in Parquet", f"{counted.archived}", f"{audit} --archive {folder}/archive"),
        ("not archived", f"{len(counted.not_archived)}", ""),
        ("archived, not in the ledger", f"{len(counted.unknown)}", ""),
        ("archived twice", f"{len(counted.twice)}", ""),
        ("orders counted", f"{counted.counted}", f"{revenue} 'select sum(orders) from revenue'"),
        ("cents counted", f"{counted.cents}", f"{revenue} 'select sum(cents) from revenue'"),
        ("cents of the ledger", f"{counted.cents_of_ledger}", "quantity x unit_price_cents of broker/demo/orders.csv"),
        ("wrong minutes", f"{len(counted.wrong_minutes)}", f"{revenue} 'select * from revenue order by minute'"),
        ("batches", f"{counted.batches}", f"{revenue} 'select * from batches'"),
    ]
    name_width = max(len(name) for name, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows)
    lines = ["", f"{'':{name_width}}  {'':>{value_width}}  see it yourself"]
    lines += [f"{name:{name_width}}  {value:>{value_width}}  {command}".rstrip() for name, value, command in rows]
    return "\n".join([*lines, "", verdict(counted)])


def verdict(counted: Counted) -> str:
    """The last line."""
    if counted.is_good:
        return "Every order is archived once and counted once."
    first = ", ".join([*counted.not_archived, *counted.unknown, *counted.twice, *counted.wrong_minutes][:5])
    return (
        f"BROKEN PROMISE: {len(counted.not_archived)} orders not archived, {len(counted.unknown)} unknown, "
        f"{len(counted.twice)} twice, {len(counted.wrong_minutes)} minutes wrong, such as {first}"
    )
