"""The account of what happened to every order, made from what the programs wrote down while it happened.

Each program appends one line to a ledger of its own before it goes on:

    sent.csv           order,crc                                   the order service, before the first attempt
    acknowledged.csv   order,message_id,latency_ms,at_ms           the order service, when the broker said SEND_OK
    received-N.csv     order,message_id,place,crc,at_ms            packer N, before it confirms the order
    outage.csv         killed_ms,ready_ms                          the director: when the broker was away

`place` is queue:offset, where the message stands in the broker.  Nothing here talks to the broker: the
ledgers are evidence on their own.

    lost        acknowledged, and never received: there must be none
    altered     received with other bytes than were sent: there must be none
    redelivered received again from the same place.  Allowed: a packer's progress is saved every few seconds,
                so after a kill the broker repeats what it is not sure of, rather than leaving something out
    stored twice received from two places under one message id.  Allowed: the broker was killed after it had
                stored the order and before it could say so, and the order service sent it again
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_AFTERMATH_MS = 1000  # the orders that piled up meanwhile are still ahead of the new ones


@dataclass(frozen=True, slots=True)
class Account:
    """Counts over all orders, and how fast they went."""

    sent: int
    acknowledged: int
    received: int
    lost: list[str]
    altered: list[str]
    redelivered: int
    stored_twice: int
    sent_per_s: float
    p50_ms: float
    p99_ms: float
    p99_calm_ms: float  # of the orders that did not meet the outage
    away_ms: int

    @property
    def is_good(self) -> bool:
        """Whether every promise was kept."""
        return not self.lost and not self.altered


def settle(folder: Path) -> Account:
    """Read the ledgers of a folder and strike the balance."""
    sent = {row[0]: row[1] for row in _rows(folder / "sent.csv")}
    acknowledged = list(_rows(folder / "acknowledged.csv"))
    places: dict[str, set[str]] = {}
    altered: list[str] = []
    deliveries = 0
    for ledger in sorted(folder.glob("received-*.csv")):
        for order, _, place, crc, _ in _rows(ledger):
            deliveries += 1
            places.setdefault(order, set()).add(place)
            if sent.get(order) != crc:
                altered.append(order)
    stored_twice = sum(len(each) - 1 for each in places.values())
    latencies = sorted(float(row[2]) for row in acknowledged)
    outages = [(int(killed), int(ready)) for killed, ready in _rows(folder / "outage.csv")]
    calm = sorted(float(row[2]) for row in acknowledged if not _met(outages, float(row[2]), int(row[3])))
    return Account(
        sent=len(sent),
        acknowledged=len(acknowledged),
        received=len(places),
        lost=[row[0] for row in acknowledged if row[0] not in places],
        altered=altered,
        redelivered=deliveries - len(places) - stored_twice,
        stored_twice=stored_twice,
        sent_per_s=_rate([int(row[3]) for row in acknowledged]),
        p50_ms=_share(latencies, 0.50),
        p99_ms=_share(latencies, 0.99),
        p99_calm_ms=_share(calm, 0.99),
        away_ms=sum(ready - killed for killed, ready in outages),
    )


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
