"""Makes a consumer's subscriptions from its parameters; the same for every kind of consumer.

The version is the time at which the consumer was made.  Brokers keep the newest subscription of each topic, so the
member that was started last decides.

    subscription={"Orders": "paid || refunded", "Payments": Sql("amount > 100 AND region = 'eu'")}

An expression in SQL92 is compiled by the brokers (`broker/docs/filters.md` has the language).  A consumer that has one
asks a broker of its topic at its start, as RocketMQ's does, so that an invalid expression raises an exception there.
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
    """Return a subscription for each topic, and for the group's retry topic if wanted; ConfigError for invalid
    names.
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


async def check_filters(
    session: Session, routes: Routes, group: str, client_id: str, subscriptions: Sequence[Subscription]
) -> None:
    """Raise RefusedError when a broker cannot compile an expression.

    A broker that does not answer is no error; it checks the expression at the first pull.
    """
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
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
