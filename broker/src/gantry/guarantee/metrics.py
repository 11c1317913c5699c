"""What /metrics of a resend process says, in Prometheus's text format.

Backlog and ages are of the database, so every process says the same; counters are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gantry.guarantee.resending import ResendCounts


class Backlog(NamedTuple):
    """Open deliveries of one group."""

    consumer_group: str
    deliveries: int
    oldest_ms: int
    due: int


class Told(Protocol):
    """What a teller counts."""

    told: int
    failures: int


class GuaranteeMetrics:
    """Makes the text."""

    def __init__(self, teller: Told) -> None:
        self._teller = teller
        self._counts = {"sent": 0, "refused": 0, "unknown": 0}
        self._backlog: Sequence[Backlog] = ()
        self._at_ms = 0
        self._passes = 0

    def passed(self, counts: ResendCounts, backlog: Sequence[Backlog], now_ms: int) -> None:
        """Count a pass."""
        for name in self._counts:
            self._counts[name] += getattr(counts, name)
        self._backlog, self._at_ms, self._passes = backlog, now_ms, self._passes + 1

    def text(self) -> bytes:
        """Return all metrics as they are now."""
        lines: list[str] = []

        def add(name: str, kind: str, text: str, values: Sequence[tuple[str, float]]) -> None:
            lines.extend((f"# HELP {name} {text}", f"# TYPE {name} {kind}"))
            lines.extend(f"{name}{labels} {value:.15g}" for labels, value in values)

        by_group = [(f'{{consumer_group="{_label(one.consumer_group)}"}}', one) for one in self._backlog]
        add("gantry_guarantee_passes_total", "counter", "Passes of this process.", [("", self._passes)])
        results = [(f'{{result="{name}"}}', count) for name, count in self._counts.items()]
        add("gantry_guarantee_resends_total", "counter", "Messages that this process sent again, by result.", results)
        open_ = [(labels, one.deliveries) for labels, one in by_group]
        add("gantry_guarantee_open", "gauge", "Messages that a group has not confirmed.", open_)
        due = [(labels, one.due) for labels, one in by_group]
        add("gantry_guarantee_due", "gauge", "Those of them that are due to be sent again.", due)
        ages = [(labels, max(0, self._at_ms - one.oldest_ms) / 1000) for labels, one in by_group]
        add("gantry_guarantee_oldest_seconds", "gauge", "Age of the oldest message without confirmation.", ages)
        told, failures = [("", self._teller.told)], [("", self._teller.failures)]
        add("gantry_guarantee_given_up_total", "counter", "Messages of which people were told.", told)
        add("gantry_guarantee_telling_failures_total", "counter", "Digests that a channel did not take.", failures)
        return ("\n".join(lines) + "\n").encode()


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
