"""The table of topics while one of the masters does not answer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from gantry.client.requests.question import Question
from gantry.errors import UnreachableError
from gantry.gateway.brokers import Brokers
from gantry.model.topic import TopicConfig
from gantry.queues import subscriptions, topictable
from gantry.queues.subscriptions import KnownTopic, TopicSubscription
from gantry.queues.topictable import KnownTopics


async def test_the_end_of_a_subscription_is_seen_although_another_master_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topictable, "_FRESH_S", 0.0)
    begun = TopicSubscription("s", "s" * 16, "http://x", created_s=5, modified_s=5)
    topic = KnownTopic("tea", "0" * 16, created_s=5, modified_s=5, every={"s": begun})
    answers: dict[str, KnownTopic | None] = {"a": None, "b": topic}

    async def masters() -> dict[str, str]:
        return {"broker-a": "a", "broker-b": "b"}

    async def ask(address: str, question: Question[object], timeout_s: float) -> dict[str, TopicConfig]:
        answer = answers[address]
        if answer is None:
            raise UnreachableError(f"{address}: silent")
        return {"tea": TopicConfig("tea", attributes=subscriptions.stored(answer))}

    brokers = SimpleNamespace(masters=masters, session=SimpleNamespace(ask=ask), doubt_masters=lambda: None)
    known = KnownTopics(cast(Brokers, brokers), lambda: 0)
    with pytest.raises(UnreachableError):
        await known.every()  # nothing is known of one of them
    answers["a"] = topic
    assert [one.name for one in (await known.every())["tea"].subscriptions()] == ["s"]
    ended = replace(begun, endpoint="", modified_s=6, is_deleted=True)
    answers.update(a=None, b=replace(topic, every={"s": ended}))
    assert list((await known.every())["tea"].subscriptions()) == []
    await known.close()
