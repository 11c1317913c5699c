"""Counters of transactions, as plain integers; read by /metrics and `gantry tx`.

`asked` counts checks that were written to a live connection, `answered` the ends that came with the from-check flag,
`alone` halves whose group had no connection when their turn came, `full` those whose connections had too much output.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gantry.leaves.openhalves import Tally

# RocketMQ's buckets of rocketmq_finish_message_latency, and finer ones below: seconds from birth to commit.
LATENCY_BOUNDS_S = (0.01, 0.1, 1.0, 5.0, 60.0, 600.0, 3600.0, 43200.0, 86400.0)


class TransactionCounts:
    """Counters of one broker since its start."""

    __slots__ = (
        "alone",
        "answered",
        "asked",
        "committed",
        "conflicts",
        "full",
        "given_up",
        "judged",
        "latencies",
        "latency_sums_s",
        "passes",
        "put_back",
        "rearmed",
        "refused",
        "repaired",
        "repeated",
        "rolled_back",
        "stuck",
        "unknown",
        "unreadable",
    )

    def __init__(self) -> None:
        self.asked = 0
        self.answered = 0
        self.alone = 0
        self.full = 0
        self.committed: dict[str, int] = {}  # by topic
        self.rolled_back: dict[str, int] = {}
        self.given_up = 0
        self.judged = 0  # halves of batches that a pass ended, because their batch was decided
        self.put_back = 0
        self.rearmed = 0
        self.repaired = 0  # op messages that a crash had taken, written at the start
        self.repeated = 0  # ends of transactions that had ended that way before
        self.conflicts = 0  # ends that contradict how the transaction had ended
        self.refused: dict[str, int] = {}  # ends refused, by reason
        self.unknown = 0  # ends that say "unknown"
        self.stuck = 0  # now: halves whose segment is to go and of which no copy can be made
        self.unreadable = 0  # halves whose record could not be read
        self.passes = 0
        self.latencies: dict[str, list[int]] = {}  # by topic: between the bounds
        self.latency_sums_s: dict[str, float] = {}

    def refuse(self, reason: str) -> None:
        """Count a refused end, by its reason."""
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def finish(self, topic: str, is_commit: bool, seconds: float) -> None:
        """Count the end of a transaction, `seconds` after its half was stored."""
        table = self.committed if is_commit else self.rolled_back
        table[topic] = table.get(topic, 0) + 1
        if not is_commit:
            return
        seconds = max(0.0, seconds)
        self.latency_sums_s[topic] = self.latency_sums_s.get(topic, 0.0) + seconds
        self._latencies(topic)[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1

    def finish_all(self, found: Tally) -> None:
        """Count the ends of a run, as `leaves.openhalves.tally` found them."""
        for topic, (commits, rollbacks, total_s, latencies) in found.items():
            if rollbacks:
                self.rolled_back[topic] = self.rolled_back.get(topic, 0) + rollbacks
            if commits:
                self.committed[topic] = self.committed.get(topic, 0) + commits
                self.latency_sums_s[topic] = self.latency_sums_s.get(topic, 0.0) + total_s
                known = self._latencies(topic)
                known[:] = [before + more for before, more in zip(known, latencies, strict=True)]

    def _latencies(self, topic: str) -> list[int]:
        return self.latencies.setdefault(topic, [0] * (len(LATENCY_BOUNDS_S) + 1))
