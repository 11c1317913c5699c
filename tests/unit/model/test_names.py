"""Names of topics and groups: what is allowed, and which mean something."""

from __future__ import annotations

import pytest

from gantry.model import names


@pytest.mark.parametrize(
    "topic", ["orders", "a", "%RETRY%g", "NS%orders", "a|b", "A_b-9", "t" * 127, "%RETRY%" + "g" * 248]
)
def test_a_topic_of_the_alphabet_is_allowed(topic: str) -> None:
    assert names.topic_fault(topic) is None


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a b", "characters"),
        ("../etc", "characters"),
        ("a/b", "characters"),
        ("\u4f60", "characters"),
        ("a\n", "characters"),
        ("a\0", "characters"),
        ("t" * 128, "128 bytes, 127"),
        ("%DLQ%" + "g" * 251, "256 bytes, 255"),
    ],
)
def test_any_other_topic_has_a_fault_that_says_which(topic: str, words: str) -> None:
    fault = names.topic_fault(topic)
    assert fault is not None
    assert words in fault


def test_a_group_has_120_bytes_at_most() -> None:
    assert names.group_fault("g" * 120) is None
    assert "121 bytes, 120" in str(names.group_fault("g" * 121))
    assert "blank" in str(names.group_fault(""))
    assert "characters" in str(names.group_fault("a.b"))


def test_a_hostile_name_does_not_fill_a_log_line() -> None:
    assert len(str(names.topic_fault("/" * 100_000))) < 200
    assert len(str(names.group_fault("t" * 100_000))) < 200


def test_a_group_has_a_retry_and_a_dead_letter_topic() -> None:
    assert names.retry_topic("g") == names.retry_topic("%RETRY%g") == "%RETRY%g"
    assert names.dlq_topic("g") == names.dlq_topic("%DLQ%g") == "%DLQ%g"
    assert (names.group_of("%RETRY%g"), names.group_of("%DLQ%g"), names.group_of("orders")) == ("g", "g", None)
    assert names.is_retry_topic("%RETRY%g")
    assert names.is_dlq_topic("%DLQ%g")
    assert not names.is_retry_topic("%DLQ%g")


def test_the_broker_keeps_some_names_for_itself() -> None:
    assert names.is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert names.is_system_topic("rmq_sys_REVIVE_LOG_c")
    assert not names.is_system_topic("orders")
    assert names.is_system_group("CID_RMQ_SYS_x")
    assert names.is_system_group("TOOLS_CONSUMER")
    assert not names.is_system_group("orders-consumer")


def test_whatever_must_not_be_sent_to_is_a_system_topic() -> None:
    assert names.NOT_SENDABLE_TOPICS < names.SYSTEM_TOPICS
    assert names.TEMPLATE_TOPIC not in names.NOT_SENDABLE_TOPICS


def test_system_names_are_names() -> None:
    assert all(names.topic_fault(topic) is None for topic in names.SYSTEM_TOPICS)
    assert all(names.group_fault(group) is None for group in names.SYSTEM_GROUPS)
    assert names.topic_fault(names.reply_topic("DefaultCluster")) is None
