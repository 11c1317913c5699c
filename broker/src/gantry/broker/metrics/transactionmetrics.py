"""Metrics of transactions: families for the table in `families`.

Four of them also exist with RocketMQ 5's names (`nativemetrics`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gantry.broker.metrics.family import COUNTER, GAUGE, HISTOGRAM, Counted, Family, Sample, one
from gantry.transaction.counts import LATENCY_BOUNDS_S
from gantry.transaction.decisions import SINKS_MAX

if TYPE_CHECKING:
    from gantry.broker.parts import Parts

FINISH = "gantry_transaction_finish_seconds"


def finish(parts: Parts) -> Iterator[tuple[str, Counted]]:
    """Yield the histogram of seconds between a half's birth and its commit, by topic."""
    counts = parts.transactions.counts
    for topic, latencies in list(counts.latencies.items()):
        yield topic, (LATENCY_BOUNDS_S, latencies, counts.latency_sums_s[topic])


def finish_of_all(parts: Parts) -> Counted:
    """Return the histogram of seconds between a half's birth and its commit, over all topics."""
    counts = parts.transactions.counts
    none = [0] * (len(LATENCY_BOUNDS_S) + 1)
    together = [sum(column) for column in zip(none, *counts.latencies.values(), strict=True)]
    return LATENCY_BOUNDS_S, together, sum(counts.latency_sums_s.values())


def open_by_topic(parts: Parts) -> Iterator[Sample]:
    """Yield the open half messages by topic."""
    for topic, count in list(parts.transactions.book.topics.items()):
        yield (topic,), count


def committed(parts: Parts) -> Iterator[Sample]:
    """Yield the commits by topic."""
    for topic, count in list(parts.transactions.counts.committed.items()):
        yield (topic,), count


def rolled_back(parts: Parts) -> Iterator[Sample]:
    """Yield the rollbacks by topic."""
    for topic, count in list(parts.transactions.counts.rolled_back.items()):
        yield (topic,), count


def refused(parts: Parts) -> Iterator[Sample]:
    """Yield the refused ends by reason; an end that contradicts an earlier one is one of them."""
    counts = parts.transactions.counts
    yield ("contradicts an earlier end",), counts.conflicts
    for reason, count in list(counts.refused.items()):
        yield (reason,), count


def checks(parts: Parts) -> Iterator[Sample]:
    """Yield the checks by result."""
    counts = parts.transactions.counts
    for result in ("asked", "answered", "alone", "full"):
        yield (result,), getattr(counts, result)


def moved(parts: Parts) -> Iterator[Sample]:
    """Yield the records that were appended for open transactions, by kind."""
    counts = parts.transactions.counts
    for kind in ("given_up", "put_back", "rearmed", "repaired"):
        yield (kind,), getattr(counts, kind)


def violations(parts: Parts) -> Iterator[Sample]:
    """Yield the transactional producer groups that other kinds of producers use too."""
    yield from list(parts.transactions.group_rule.violations.items())


def oldest_s(parts: Parts) -> float:
    """Return the age of the oldest open half in seconds."""
    return parts.transactions.state()["oldestMs"] / 1000


def undecided_age_s(parts: Parts) -> float:
    """Return for how many seconds the oldest open half of a batch has waited for a decision."""
    since_ms = parts.batches.undecided()[1]
    return max(0, parts.clock.now_ms() - since_ms) / 1000 if since_ms else 0.0


def decisions(parts: Parts) -> Iterator[Sample]:
    """Yield the requests to decide a batch, by result."""
    counts = parts.batches.decisions.counts
    for result in ("committed", "repeated", "aborted", "done", "learned", "refused"):
        yield (result,), getattr(counts, result)


FAMILIES: tuple[Family, ...] = (
    Family(
        GAUGE,
        "gantry_transactions_open",
        "Half messages that were neither committed, rolled back nor given up.",
        ("topic",),
        open_by_topic,
    ),
    Family(
        GAUGE,
        "gantry_transaction_oldest_age_seconds",
        "Age of the oldest of them.",
        (),
        one(oldest_s),
    ),
    Family(
        GAUGE,
        "gantry_transactions_unmovable",
        "Those of an older version or another broker whose properties leave no room for a copy; the log names one.",
        (),
        one(lambda p: len(p.transactions.moves.unmovable)),
    ),
    Family(COUNTER, "gantry_transactions_committed", "Commits.", ("topic",), committed),
    Family(COUNTER, "gantry_transactions_rolled_back", "Rollbacks.", ("topic",), rolled_back),
    Family(
        COUNTER,
        "gantry_transaction_ends_repeated",
        "Ends of transactions that had ended that way before; answered like the first.",
        (),
        one(lambda p: p.transactions.counts.repeated),
    ),
    Family(
        COUNTER,
        "gantry_transaction_ends_refused",
        "Ends that were refused, by reason; most clients do not wait for the answer.",
        ("reason",),
        refused,
    ),
    Family(
        COUNTER,
        "gantry_transaction_checks",
        "Producers asked (written to a connection), their answers; halves whose group had no connection (alone) or "
        "only full ones.",
        ("result",),
        checks,
    ),
    Family(
        COUNTER,
        "gantry_transactions_moved",
        "Transactions given up, put back, armed again; ops written again after a crash.",
        ("kind",),
        moved,
    ),
    Family(
        COUNTER,
        "gantry_transaction_group_violations",
        "A transactional producer group is also used for something else.",
        ("producer_group", "kind"),
        violations,
    ),
    Family(
        GAUGE,
        "gantry_transaction_map_bytes",
        "Memory of the settle map: 0.25 MB per million halves.",
        (),
        one(lambda p: p.transactions.book.map.bytes),
    ),
    Family(
        GAUGE,
        "gantry_sink_undecided_halves",
        "Open halves of batches of sinks that nobody decided about; they stay until somebody does.",
        (),
        one(lambda p: p.batches.undecided()[0]),
    ),
    Family(
        GAUGE,
        "gantry_sink_undecided_oldest_age_seconds",
        "Age of the oldest of them.",
        (),
        one(undecided_age_s),
    ),
    Family(GAUGE, "gantry_sinks", "Sinks whose newest decision is kept.", (), one(lambda p: len(p.batches.decisions))),
    Family(
        GAUGE,
        "gantry_sinks_limit",
        "How many may be kept; a new sink is refused when none of them is old enough to make room.",
        (),
        one(lambda p: SINKS_MAX),
    ),
    Family(
        COUNTER,
        "gantry_sink_decisions",
        "Batches committed, asked about again (repeated), done, learned from their home, refused; parts aborted.",
        ("result",),
        decisions,
    ),
    Family(
        COUNTER,
        "gantry_sink_halves_judged",
        "Halves of batches that a check pass found decided, and ended.",
        (),
        one(lambda p: p.transactions.counts.judged),
    ),
    Family(HISTOGRAM, FINISH, "From a half's birth to its commit.", (), lambda p: ()),
)
