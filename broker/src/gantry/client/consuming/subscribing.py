"""Checks a consumer's filters at its start; the same for every kind of consumer.

An expression in SQL92 is compiled by the brokers (`broker/docs/filters.md` has the language).  A consumer that has one
asks a broker of its topic at its start, as RocketMQ's does, so that an invalid expression raises an exception there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.requests import questions
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from gantry.model.subscription import TAG_EXPRESSION, Subscription
from gantry.wire.codes import ResponseCode

log = logging.getLogger(__name__)

_CHECK_S = 3.0  # RocketMQ's


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
