"""What a consumer subscribes to, from what its user wrote; the same for every kind of consumer.

The version is the instant at which the consumer was made: brokers keep the newest entry of each topic, so a member
that was started later decides.
"""

from __future__ import annotations

from collections.abc import Mapping

from gantry.errors import ConfigError
from gantry.model.names import group_fault, topic_fault
from gantry.model.subscription import Subscription


def subscriptions_of(group: str, subscription: Mapping[str, str], now_ms: int) -> tuple[Subscription, ...]:
    """One subscription per topic; ConfigError naming what cannot be meant."""
    faults = [group_fault(group), *map(topic_fault, subscription)]
    if not subscription:
        faults.append("a consumer subscribes to at least one topic")
    for fault in faults:
        if fault is not None:
            raise ConfigError(fault)
    return tuple(Subscription(topic, tags or "*", now_ms) for topic, tags in subscription.items())
