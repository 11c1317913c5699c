"""What a consumer subscribes to, from what its user wrote; the same for every kind of consumer.

The version is the instant at which the consumer was made: brokers keep the newest entry of each topic, so a member
that was started later decides.

    subscription={"Orders": "paid || refunded", "Payments": Sql("amount > 100 AND region = 'eu'")}

An expression in SQL92 is compiled by the brokers (`broker/docs/filters.md` has the language).  A consumer that has one
asks a broker of its topic at its start, as RocketMQ's does, so that a fault is an exception there and not a line in
somebody's log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.filters import Filter, subscription_to
from gantry.client.requests import questions
from gantry.errors import ConfigError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.model.names import group_fault, retry_topic, topic_fault
from gantry.model.subscription import TAG_EXPRESSION, Subscription
from gantry.wire.codes import ResponseCode

log = logging.getLogger(__name__)

_CHECK_S = 3.0  # RocketMQ's


def subscriptions_of(
    group: str, subscription: Mapping[str, Filter], now_ms: int, *, with_retries: bool = False
) -> tuple[Subscription, ...]:
    """One subscription per topic, maybe one more for the group's retry topic; ConfigError for what cannot be meant."""
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


async def start_checked(
    session: Session, routes: Routes, group: str, client_id: str, subscriptions: Sequence[Subscription]
) -> None:
    """Start both; RefusedError, with both closed again, for an expression that a broker cannot compile.

    A broker that does not answer is no reason not to start: it is asked for messages soon enough.
    """
    await session.start()
    await routes.start()
    for subscription in subscriptions:
        if subscription.expression_type == TAG_EXPRESSION:
            continue
        try:
            queues = await routes.to_read(subscription.topic)
            if queues:
                question = questions.check_filter(group, client_id, subscription)
                await session.ask(routes.master(queues[0]), question, _CHECK_S)
        except (UnreachableError, OutcomeUnknownError) as error:
            log.warning("%s: the filter of %s could not be checked: %s", group, subscription.topic, error)
        except RefusedError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                continue
            await routes.close()
            await session.close()
            raise
