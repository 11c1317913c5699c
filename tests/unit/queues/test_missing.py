"""Queues and topics that were missing, while the brokers do not answer any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from gantry.client.requests.question import Question
from gantry.errors import GantryError, RefusedError, UnreachableError
from gantry.gateway.brokers import Brokers
from gantry.model.topic import TopicConfig
from gantry.queues.faults import QueueFaultError
from gantry.queues.table import KnownQueues
from gantry.queues.topictable import KnownTopics
from gantry.wire.codes import ResponseCode


@pytest.mark.parametrize("kind", [KnownQueues, KnownTopics])
async def test_what_was_missing_is_not_called_missing_while_nobody_answers(
    kind: type[KnownQueues] | type[KnownTopics],
) -> None:
    """A message that is forwarded to such a queue would be given up after a few attempts."""
    answer: GantryError = RefusedError(ResponseCode.TOPIC_NOT_EXIST, "no")

    async def masters() -> dict[str, str]:
        return {"broker-a": "127.0.0.1:1"}

    async def ask(address: str, question: Question[TopicConfig], timeout_s: float) -> TopicConfig:
        raise answer

    brokers = SimpleNamespace(masters=masters, session=SimpleNamespace(ask=ask), doubt_masters=lambda: None)
    known = kind(cast(Brokers, brokers), lambda: 0)
    with pytest.raises(QueueFaultError, match="not exist"):
        await known.get("tea")
    answer = UnreachableError("silent")  # it may have been made meanwhile
    with pytest.raises(UnreachableError):
        await known.get("tea")
    await known.close()
