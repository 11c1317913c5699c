"""Subscriptions and groups in RocketMQ's shapes."""

from __future__ import annotations

import pytest

from gantry.leaves import hashes
from gantry.model.subscription import GroupConfig, Subscription, tags_of


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("*", ()),
        ("", ()),
        ("a", ("a",)),
        ("a||b", ("a", "b")),
        (" a ||  b || ", ("a", "b")),
        ("b||a||b", ("b", "a")),
        ("a b", ("a b",)),
        ("||", ()),
    ],
)
def test_tags_are_what_stands_between_bars(expression: str, tags: tuple[str, ...]) -> None:
    assert tags_of(expression) == tags


def test_a_subscription_has_rocketmqs_shape() -> None:
    subscription = Subscription("orders", "paid || open", 9)
    assert subscription.to_json() == {
        "classFilterMode": False,
        "codeSet": [hashes.java_hash("paid"), hashes.java_hash("open")],
        "expressionType": "TAG",
        "subString": "paid || open",
        "subVersion": 9,
        "tagsSet": ["paid", "open"],
        "topic": "orders",
    }
    assert Subscription.from_json(subscription.to_json()) == subscription


def test_gos_subscription_is_understood() -> None:
    """Empty expression, codes as text, null sets, a version in nanoseconds."""
    said = {"topic": "t", "subString": "", "tagsSet": None, "codeSet": ["65"], "subVersion": 1699999999999999999}
    assert Subscription.from_json(said) == Subscription("t", "*", 1699999999999999999)


def test_an_sql_expression_has_no_tags() -> None:
    assert Subscription("t", "a > 5 || b", 1, "SQL92").tags == ()


def test_a_group_has_rocketmqs_shape() -> None:
    group = GroupConfig("g", consume_orderly=True, retry_times_max=3, attributes={"a": "b"})
    document = group.to_json()
    assert document["groupName"] == "g"
    assert document["consumeMessageOrderly"] is True
    assert document["retryMaxTimes"] == 3
    assert document["groupRetryPolicy"] == {"type": "CUSTOMIZED"}
    assert GroupConfig.from_json(document) == group


def test_a_group_that_says_nothing_has_javas_defaults() -> None:
    group = GroupConfig.from_json({"groupName": "g"})
    assert group == GroupConfig("g")
    assert (group.consume_enable, group.consume_from_min_enable, group.consume_broadcast_enable) == (True, True, True)
    assert (group.retry_queues, group.retry_times_max, group.consume_timeout_minutes) == (1, 16, 15)
    assert (group.broker_id, group.slow_broker_id, group.notify_enable) == (0, 1, True)
