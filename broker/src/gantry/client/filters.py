"""Filters of a subscription: a text with tags, or `Sql`.

    subscription={"Orders": "paid || refunded", "Payments": Sql("amount > 100 AND region = 'eu'")}

    "paid || refunded"                      messages with one of these tags; `*` or nothing: all messages
    Sql("amount > 100 AND region = 'eu'")   messages whose properties match an SQL92 expression

Brokers compile the expression; `broker/docs/filters.md` has the language.

The version of a consumer's subscriptions is the time at which it was made.  Brokers keep the newest subscription of
each topic, so the member that was started last decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gantry.errors import ConfigError
from gantry.model.names import group_fault, retry_topic, topic_fault
from gantry.model.subscription import SQL_EXPRESSION, Subscription


@dataclass(frozen=True, slots=True)
class Sql:
    """Matches messages whose properties fulfil an SQL92 expression. ConfigError when it is empty."""

    expression: str

    def __post_init__(self) -> None:
        if not self.expression.strip():
            raise ConfigError("the SQL92 expression is empty; the text '*' means all messages")


Filter = str | Sql


def subscription_to(topic: str, wanted: Filter, version: int = 0) -> Subscription:
    """Return the subscription to a topic with this filter."""
    if isinstance(wanted, Sql):
        return Subscription(topic, wanted.expression, version, SQL_EXPRESSION)
    return Subscription(topic, wanted or "*", version)


def subscriptions_of(
    group: str, subscription: Mapping[str, Filter], now_ms: int, *, with_retries: bool = False
) -> tuple[Subscription, ...]:
    """Return a subscription for each topic, and for the group's retry topic if wanted.

    ConfigError for invalid names, and for no topic.
    """
    faults = [group_fault(group), *map(topic_fault, subscription)]
    if not subscription:
        faults.append("a consumer subscribes to at least one topic")
    for fault in faults:
        if fault is not None:
            raise ConfigError(fault)
    all_wanted = dict(subscription)
    if with_retries:
        all_wanted.setdefault(retry_topic(group), "*")
    return tuple(subscription_to(topic, wanted, now_ms) for topic, wanted in all_wanted.items())
