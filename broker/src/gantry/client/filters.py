"""Filters of a subscription: a text with tags, or `Sql`.

    "paid || refunded"                      messages with one of these tags; `*` or nothing: all messages
    Sql("amount > 100 AND region = 'eu'")   messages whose properties match an SQL92 expression

Brokers compile the expression; `broker/docs/filters.md` has the language.
"""

from __future__ import annotations

from dataclasses import dataclass

from gantry.errors import ConfigError
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
