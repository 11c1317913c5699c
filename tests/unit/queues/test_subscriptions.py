from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.model import httptopic
from gantry.queues import subscriptions, xmlin
from gantry.queues.faults import QueueFaultError
from gantry.queues.subscriptions import (
    DELETED_KEPT_S,
    KnownTopic,
    NotifyFormat,
    NotifyStrategy,
    TopicOptions,
    TopicSubscription,
)

NAMES = st.from_regex(r"[0-9A-Za-z][0-9A-Za-z_-]{0,20}", fullmatch=True)
IDS = st.from_regex(r"[0-9a-f]{16}", fullmatch=True)
TIMES = st.integers(0, 10**10)
PRESENT = st.builds(
    TopicSubscription, NAMES, IDS, st.text(max_size=600), st.sampled_from(NotifyStrategy),
    st.sampled_from(NotifyFormat), st.text(max_size=16), TIMES, TIMES,
)  # fmt: skip
DELETED = st.builds(
    TopicSubscription, NAMES, IDS, st.just(""), created_s=TIMES, modified_s=TIMES, is_deleted=st.just(True)
)
SUBSCRIPTIONS = st.lists(PRESENT | DELETED, max_size=5, unique_by=lambda one: one.name).map(
    lambda found: {one.name: one for one in found}
)
TOPICS = st.builds(
    KnownTopic, st.just("t"), IDS, st.builds(TopicOptions, st.integers(1024, 65_536), st.booleans()), TIMES, TIMES,
    SUBSCRIPTIONS,
)  # fmt: skip


@given(TOPICS)
def test_a_topic_is_read_from_attributes_as_it_was_written(topic: KnownTopic) -> None:
    stored = subscriptions.stored(topic)
    assert subscriptions.of_attributes("t", stored) == topic


def test_the_longest_subscription_fits_into_an_attribute() -> None:
    names = ("s" * 120, "0" * 16, "x" * 600)
    longest = TopicSubscription(*names, NotifyStrategy.DECAY, NotifyFormat.SIMPLIFIED, "漢" * 16, 10**11, 10**11)
    for name, value in subscriptions.stored(KnownTopic("t", "0" * 16, every={longest.name: longest})).items():
        assert not httptopic.fault(name, value)


@given(st.dictionaries(st.sampled_from([httptopic.ID, httptopic.SIZE_MAX, "gantry.topic.sub.a"]), st.text(max_size=80)))
def test_attributes_that_make_no_sense_are_no_error(attributes: dict[str, str]) -> None:
    subscriptions.of_attributes("t", attributes)


def topic(created_s: int = 1, modified_s: int = 1, identity: str = "a" * 16, *every: TopicSubscription) -> KnownTopic:
    return KnownTopic("t", identity, TopicOptions(), created_s, modified_s, {one.name: one for one in every})


def sub(name: str, modified_s: int, *, is_deleted: bool = False) -> TopicSubscription:
    endpoint = "" if is_deleted else "http://x"
    return TopicSubscription(name, "b" * 16, endpoint, modified_s=modified_s, is_deleted=is_deleted)


def test_subscriptions_of_several_masters_are_taken_together_the_newest_of_each() -> None:
    one = topic(1, 1, "a" * 16, sub("both", 5), sub("first", 1))
    two = topic(1, 1, "a" * 16, sub("both", 7), sub("second", 2))
    found = subscriptions.merged([one, two])
    assert found is not None and {name: each.modified_s for name, each in found.every.items()} == {
        "both": 7, "first": 1, "second": 2,
    }  # fmt: skip


def test_an_ended_subscription_does_not_come_back_with_a_master_that_was_away() -> None:
    away, present = topic(1, 1, "a" * 16, sub("s", 5)), topic(1, 1, "a" * 16, sub("s", 6, is_deleted=True))
    for order in ([away, present], [present, away]):
        found = subscriptions.merged(order)
        assert found is not None and found.subscriptions() == []


def test_a_topic_made_again_has_nothing_of_the_one_before() -> None:
    found = subscriptions.merged([topic(1, 99, "f" * 16, sub("old", 50)), topic(2, 2, "a" * 16)])
    assert found == topic(2, 2, "a" * 16)


def test_ended_subscriptions_are_forgotten_after_a_week() -> None:
    one = topic(1, 1, "a" * 16, sub("gone", 100, is_deleted=True), sub("there", 100))
    assert set(subscriptions.without_old(one, 100 + DELETED_KEPT_S - 1).every) == {"gone", "there"}
    assert set(subscriptions.without_old(one, 100 + DELETED_KEPT_S).every) == {"there"}


@pytest.mark.parametrize(
    ("endpoint", "queue"),
    [
        ("acs:mns:cn-hangzhou:123:queues/q-1", "q-1"),
        ("acs:mns:0:127:queues/q", "q"),
        ("acs:mns:::queues/q", "q"),
        ("http://127.0.0.1:80/x?y=z", ""),
        ("https://host", ""),
    ],
)
def test_endpoints_name_a_queue_or_are_urls(endpoint: str, queue: str) -> None:
    root = xmlin.read(f"<Subscription><Endpoint>{endpoint}</Endpoint></Subscription>".encode())
    found = subscriptions.asked_subscription(root, TopicSubscription("s", "", ""), is_new=True)
    assert (found.endpoint, found.queue) == (endpoint, queue)


@pytest.mark.parametrize(
    "text",
    ["", "acs:mns:r:a:topics/t", "acs:mns:r:a:queues/", "acs:mns:r:a:b:queues/q", "mail:directmail:x", "ftp://x", "http://",
     "http://a b", "http://" + "x" * 600],
)  # fmt: skip
def test_other_endpoints_are_refused(text: str) -> None:
    root = xmlin.read(f"<Subscription><Endpoint>{text}</Endpoint></Subscription>".encode())
    with pytest.raises(QueueFaultError, match="Endpoint"):
        subscriptions.asked_subscription(root, TopicSubscription("s", "", ""), is_new=True)


def test_only_strategy_and_tag_of_a_subscription_change_later() -> None:
    old = replace(sub("s", 1), tag="old")
    ignored = "<Endpoint>http://y</Endpoint><NotifyContentFormat>JSON</NotifyContentFormat>"
    root = xmlin.read(f"<Subscription>{ignored}<FilterTag>new</FilterTag></Subscription>".encode())
    assert subscriptions.asked_subscription(root, old, is_new=False) == replace(old, tag="new")


@pytest.mark.parametrize("tag", ["a b", "a|b", "*", "x" * 17, "\x7f"])
def test_tags_that_no_filter_can_have_are_refused(tag: str) -> None:
    with pytest.raises(QueueFaultError):
        subscriptions.check_tag("MessageTag", tag)
