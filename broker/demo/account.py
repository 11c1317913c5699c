"""The account of what happened to every order, made from what the programs left behind.

    orders.db          orders(number, message_id, crc)             the order services: the truth about orders
    acknowledged.csv   order,message_id,latency_ms,at_ms           the order services, when the broker had confirmed
    asked-N.csv        message_id,answer                           order service N, when the broker asked about a half
    received-N.csv     order,message_id,place,crc,at_ms            packer N, before it confirms the order
    outage.csv         killed_ms,ready_ms                          the director: when the broker was away

`place` is queue:offset, where the message stands in the broker.  Nothing here talks to the broker: the
ledgers are evidence on their own.

    lost        a row whose message was never received: there must be none
    unwanted    a message received that no row knows: rolled back, and delivered all the same; there must be none
    altered     received with other bytes than were sent: there must be none
    twice       one message at two places of the topic, so committed twice: there must be none
    redelivered received again from the same place.  Allowed: when queues change hands, what was in work or not
                yet confirmed is repeated rather than left out
"""

from __future__ import annotations

import csv
import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

_AFTERMATH_MS = 1000  # the orders that piled up meanwhile are still ahead of the new ones


@dataclass(frozen=True, slots=True)
class Outage:
    """What a group went through whose master was killed; `ms` without an acknowledged order."""

    killed: str
    leads: str
    epoch_before: int
    epoch_after: int
    ms: int


@dataclass(frozen=True, slots=True)
class Account:
    """Counts over all orders, and how fast they went."""

    rows: int
    delivered: int
    lost: list[str]
    unwanted: list[str]
    altered: list[str]
    twice: list[str]
    redelivered: int
    answered_commit: int  # halves that a checker decided
    answered_rollback: int
    acknowledged: int
    orders_per_s: float
    p50_ms: float
    p99_ms: float
    p99_calm_ms: float  # of the orders that did not meet the outage
    away_ms: int

    @property
    def is_good(self) -> bool:
        """Whether every promise was kept."""
        return not (self.lost or self.unwanted or self.altered or self.twice)


def settle(folder: Path) -> Account:
    """Read the ledgers of a folder and strike the balance."""
    rows = {message_id: (number, crc) for number, message_id, crc in database(folder)}
    places: dict[str, set[str]] = {}
    altered: list[str] = []
    deliveries = 0
    for ledger in sorted(folder.glob("received-*.csv")):
        for order, message_id, place, crc, _ in _rows(ledger):
            deliveries += 1
            places.setdefault(message_id, set()).add(place)
            if rows.get(message_id, (order, crc))[1] != crc:
                altered.append(order)
    answers = {(row[0], row[1]) for ledger in sorted(folder.glob("asked-*.csv")) for row in _rows(ledger)}
    acknowledged = list(_rows(folder / "acknowledged.csv"))
    latencies = sorted(float(row[2]) for row in acknowledged)
    outages = [(int(killed), int(ready)) for killed, ready in _rows(folder / "outage.csv")]
    calm = sorted(float(row[2]) for row in acknowledged if not _met(outages, float(row[2]), int(row[3])))
    return Account(
        rows=len(rows),
        delivered=len(places),
        lost=[number for message_id, (number, _) in rows.items() if message_id not in places],
        unwanted=[message_id for message_id in places if message_id not in rows],
        altered=altered,
        twice=[message_id for message_id, where in places.items() if len(where) > 1],
        redelivered=deliveries - sum(map(len, places.values())),
        answered_commit=sum(answer == "commit" for _, answer in answers),
        answered_rollback=sum(answer == "rollback" for _, answer in answers),
        acknowledged=len(acknowledged),
        orders_per_s=_rate([int(row[3]) for row in acknowledged]),
        p50_ms=_share(latencies, 0.50),
        p99_ms=_share(latencies, 0.99),
        p99_calm_ms=_share(calm, 0.99),
        away_ms=sum(ready - killed for killed, ready in outages),
    )


def strike(folder: Path) -> Account:
    """The account at the end, with the database exported for anyone who wants to look at it."""
    lines = "".join(f"{','.join(row)}\n" for row in database(folder))
    (folder / "database.csv").write_text(lines, encoding="utf-8")
    return settle(folder)


def longest_silence_ms(folder: Path, from_ms: int) -> int:
    """The longest time from this instant on in which no order was acknowledged."""
    instants = sorted(int(row[3]) for row in _rows(folder / "acknowledged.csv") if int(row[3]) >= from_ms)
    return max((after - before for before, after in itertools.pairwise([from_ms, *instants])), default=0)


def database(folder: Path) -> list[tuple[str, str, str]]:
    """The rows of the order service's database: number, message id, crc; none while there is no table."""
    with closing(sqlite3.connect(folder / "orders.db")) as connection:
        try:
            found = connection.execute("SELECT number, message_id, crc FROM orders ORDER BY rowid").fetchall()
        except sqlite3.OperationalError:
            return []
    return [(number, message_id, str(crc)) for number, message_id, crc in found]


def _rows(path: Path) -> Iterator[list[str]]:
    if path.exists():
        with path.open(newline="", encoding="utf-8") as lines:
            # A program that was killed may have left half a line; it is no evidence of anything.
            yield from csv.reader(line for line in lines if line.endswith("\n"))


def _met(outages: list[tuple[int, int]], latency_ms: float, at_ms: int) -> bool:
    """Whether an order was under way while the broker was away, or in the second in which the queue it left cleared."""
    return any(at_ms >= killed and at_ms - latency_ms <= ready + _AFTERMATH_MS for killed, ready in outages)


def _rate(at_ms: list[int]) -> float:
    span_ms = max(at_ms, default=0) - min(at_ms, default=0)
    return len(at_ms) * 1000 / span_ms if span_ms else 0.0


def _share(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
