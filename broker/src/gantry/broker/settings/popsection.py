"""The section of a broker's configuration about popped messages; see `sections` for how a key is declared.

Defaults are RocketMQ's where it has the key.  How long a lease may last is bounded by `delays.ahead_s_max`, because a
lease is a delayed message.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from gantry.model.keys import choice, number, switch


class RequestMode(enum.StrEnum):
    """How clients read a topic: by pulls, or by pops."""

    PULL = "PULL"
    POP = "POP"


@dataclass(frozen=True, slots=True)
class PopConfig:
    """Messages that are popped: leased one by one instead of by queue."""

    leases_max: int = number(
        10_000,
        32,
        1_000_000,
        "messages",
        "How many messages of one queue a group may have popped and not acknowledged; then this queue is skipped.",
    )
    leases_total_max: int = number(
        1_000_000,
        32,
        100_000_000,
        "messages",
        "The same of all queues and groups; a lease takes some 0.4 KB of memory, and 40 bytes for each message.",
    )
    held_max: int = number(
        100_000,
        1,
        10_000_000,
        "requests",
        "How many pops may wait, of one connection as many as are left for others; the next one is refused (code 209).",
    )
    held_per_queue_max: int = number(
        1024, 1, 1_000_000, "requests", "The same of the pops of one group that wait for the same queue, or for any."
    )
    from_retry_percent: int = number(
        20, 0, 100, "percent", "How many of the pops read messages that are delivered again before all others."
    )
    default_mode: RequestMode = choice(
        RequestMode.PULL, "How clients that leave balancing to the broker read a topic: PULL, or POP."
    )
    default_share_queues: int = number(
        -1, -1, 1_000_000, "members", "With how many others a member shares its queues by POP; 0 and -1: with all."
    )
    balances: bool = switch(True, "Whether a member gets its share of the queues; false: all queues.")
