"""What a consumer subscribes to, from what its user wrote; the same for every kind of consumer.

The version is the instant at which the consumer was made: brokers keep the newest entry of each topic, so a member
that was started later decides.
"""

from __future__ import annotations

from collections.abc import Mapping

from gantry.errors import ConfigError
from gantry.model.names import group_fault, retry_topic, topic_fault
from gantry.model.subscription import Subscription


def subscriptions_of(
    group: str, subscription: Mapping[str, str], now_ms: int, *, with_retries: bool = False
) -> tuple[Subscription, ...]:
    """One subscription per topic, maybe one more for the group's retry topic; ConfigError for what cannot be meant."""
    faults = [group_fault(group), *map(topic_fault, subscription)]
    if not subscription:
        faults.append("a consumer subscribes to at least one topic")
    for fault in faults:
        if fault is not None:
            raise ConfigError(fault)
    wanted = {topic: tags or "*" for topic, tags in subscription.items()}
    if with_retries:
        wanted.setdefault(retry_topic(group), "*")
    return tuple(Subscription(topic, tags, now_ms) for topic, tags in wanted.items())
