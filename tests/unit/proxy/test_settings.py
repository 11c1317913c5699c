"""What each kind of client gets back for its settings (facts: protocol, 10.4)."""

from __future__ import annotations

from gantry.model.subscription import GroupConfig
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy import settings
from gantry.proxy.caller import Caller

JAVA = Caller("c", "JAVA", "5.0.7")
NODE = Caller("c", "HTTP", "1.0.8")


def subscribing() -> pb.Settings:
    found = pb.Settings(client_type=pb.PUSH_CONSUMER)
    found.subscription.group.name = "g"
    return found


def delays(policy: pb.RetryPolicy) -> list[int]:
    return [delay.seconds for delay in policy.customized_backoff.next]


def test_a_producer_gets_what_it_cannot_send_without() -> None:
    sent = pb.Settings(client_type=pb.PRODUCER)
    sent.publishing.topics.add(name="Tea")
    sent.backoff_policy.customized_backoff.next.add(seconds=5)
    found = settings.completed(sent, JAVA, None)
    assert [topic.name for topic in found.publishing.topics] == ["Tea"]
    assert found.publishing.max_body_size == 4 << 20
    assert found.publishing.validate_message_type
    assert found.backoff_policy.max_attempts == 3
    backoff = found.backoff_policy.exponential_backoff
    assert (backoff.initial.nanos, backoff.max.seconds, backoff.multiplier) == (10_000_000, 1, 2.0)
    assert found.HasField("metric") and not found.metric.on


def test_a_consumer_gets_the_ladder_of_delays_and_one_attempt_more_than_retries() -> None:
    found = settings.completed(subscribing(), JAVA, GroupConfig("g", consume_orderly=True, retry_times_max=3))
    assert found.WhichOneof("pub_sub") == "subscription"
    assert found.backoff_policy.max_attempts == 4
    assert delays(found.backoff_policy) == list(settings.LADDER_S)
    subscription = found.subscription
    assert (subscription.fifo, subscription.receive_batch_size) == (True, 32)
    assert subscription.long_polling_timeout.seconds == 20
    unknown = settings.completed(subscribing(), JAVA, None)
    assert (unknown.backoff_policy.max_attempts, unknown.subscription.fifo) == (17, False)


def test_node_gets_the_only_backoff_that_it_knows() -> None:
    policy = settings.completed(subscribing(), NODE, None).backoff_policy
    assert policy.WhichOneof("strategy") == "exponential_backoff"
    assert (policy.exponential_backoff.initial.seconds, policy.exponential_backoff.max.seconds) == (1, 7200)


def test_the_policy_of_a_group_counts() -> None:
    exponential = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 2000, "max": 9000, "multiplier": 3}}
    group = GroupConfig("g", retry_policy=exponential)
    backoff = settings.completed(subscribing(), JAVA, group).backoff_policy.exponential_backoff
    assert (backoff.initial.seconds, backoff.max.seconds, backoff.multiplier) == (2, 9, 3.0)
    assert [settings.redelivery_delay_s(group, attempt) for attempt in (1, 2, 3, 99)] == [2, 6, 9, 9]
    customized = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [7000, 8000]}}
    group = GroupConfig("g", retry_policy=customized)
    assert delays(settings.completed(subscribing(), JAVA, group).backoff_policy) == [7, 8]
    assert [settings.redelivery_delay_s(group, attempt) for attempt in (0, 1, 2, 3)] == [7, 7, 8, 8]
    assert settings.redelivery_delay_s(None, 2) == 5


def test_a_policy_that_cannot_be_read_counts_as_none() -> None:
    for broken in ({"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": "x"}}, {"type": "EXPONENTIAL"}):
        assert settings.redelivery_delay_s(GroupConfig("g", retry_policy=broken), 1) == 5
    for broken in ({"customizedRetryPolicy": {"next": "x"}}, {"customizedRetryPolicy": 1}, {}):
        assert settings.redelivery_delay_s(GroupConfig("g", retry_policy=broken), 1) == 1
