"""What a topic allows by its attributes."""

from __future__ import annotations

import pytest

from gantry.append.topiclimits import limits_of, type_of
from gantry.leaves import frames, properties


def send(body: bytes = b"", packed: bytes = b"", sys_flag: int = 0) -> frames.Send:
    traits, *_ = properties.scan(packed)
    return frames.Send(topic="orders", body=body, properties=packed, traits=traits, sys_flag=sys_flag)


def code(attributes: dict[str, str], body: bytes = b"", packed: bytes = b"") -> int:
    limits = limits_of("orders", attributes)
    refusal = None if limits is None else limits.refusal(send(body, packed))
    return 0 if refusal is None else refusal.code


def test_a_topic_without_such_attributes_has_no_limits() -> None:
    assert limits_of("orders", {"message.type": "MIXED", "cleanup.policy": "COMPACTION"}) is None


@pytest.mark.parametrize(("size", "expected"), [(10, 0), (11, 13)])
def test_a_body_may_have_so_many_bytes(size: int, expected: int) -> None:
    assert code({"message.size.max": "10"}, bytes(size)) == expected


def test_only_the_users_properties_count_and_each_once() -> None:
    packed = properties.pack({"TAGS": "t", "KEYS": "k", "UNIQ_KEY": "u", "a": "1", "b": "2"}) + b"a\x013\x02"
    assert code({"property.count.max": "2"}, packed=packed) == 0
    assert code({"property.count.max": "1"}, packed=packed) == 13
    assert code({"property.count.max": "1"}, packed=b"\x01x\x02a\x01\x02ab\x02a\x011") == 0


def test_the_remark_names_what_was_found_the_topic_and_the_limit() -> None:
    limits = limits_of("orders", {"message.size.max": "10"})
    refusal = None if limits is None else limits.refusal(send(bytes(11)))
    assert refusal is not None
    assert refusal.remark == "the message body has 11 bytes, topic[orders] allows 10 (message.size.max)"


def test_what_was_edited_by_hand_and_is_no_number_limits_nothing() -> None:
    assert code({"message.size.max": "ten", "property.count.max": "-1"}, bytes(100), b"a\x011\x02") == 0


@pytest.mark.parametrize(
    ("pairs", "sys_flag", "expected"),
    [
        ({"TAGS": "t"}, 0, "NORMAL"),
        ({"__SHARDINGKEY": "o-1"}, 0, "FIFO"),
        ({"DELAY": "3", "__SHARDINGKEY": "o-1"}, 0, "DELAY"),
        ({"DELAY": "0"}, 0, "DELAY"),  # RocketMQ: whatever the value is
        ({"TIMER_DELIVER_MS": "1"}, 0, "DELAY"),
        ({"TIMER_DELAY_SEC": "1"}, 0, "DELAY"),
        ({"TIMER_DELAY_MS": "1"}, 0, "DELAY"),
        ({"__STARTDELIVERTIME": "1"}, 0, "DELAY"),  # the cloud product's
        ({"TRAN_MSG": "true", "DELAY": "3", "__SHARDINGKEY": "o-1"}, 4, "TRANSACTION"),
        ({"TRAN_MSG": "false"}, 0, "NORMAL"),
        ({}, 4, "TRANSACTION"),  # clients of 3.2.6
    ],
)
def test_a_type_is_derived_as_rocketmqs_proxy_does(pairs: dict[str, str], sys_flag: int, expected: str) -> None:
    one = send(packed=properties.pack(pairs), sys_flag=sys_flag)
    assert type_of(one) == expected
    for kind in ("NORMAL", "FIFO", "DELAY", "TRANSACTION"):
        limits = limits_of("orders", {"message.type": kind})
        assert limits is not None
        assert (limits.refusal(one) is None) == (kind == expected)
    for taking_all in ("MIXED", "UNSPECIFIED", "edited by hand"):
        assert limits_of("orders", {"message.type": taking_all}) is None


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_REVIVE_LOG_c"])
def test_retry_dead_letter_and_system_topics_take_every_type(topic: str) -> None:
    assert limits_of(topic, {"message.type": "FIFO"}) is None


def test_the_check_of_types_is_switched_off_alone() -> None:
    assert limits_of("orders", {"message.type": "FIFO"}, checks_type=False) is None
    assert code({"message.type": "NORMAL", "message.size.max": "1"}, bytes(2)) == 13


def test_a_cancel_is_of_no_type() -> None:
    packed = properties.pack({"TIMER_DEL_UNIQKEY": "u", "TIMER_DELIVER_MS": "1"})
    assert code({"message.type": "NORMAL"}, packed=packed) == 0


def test_the_remark_about_a_type_says_both_types_and_what_to_do() -> None:
    limits = limits_of("orders", {"message.type": "FIFO"})
    refusal = None if limits is None else limits.refusal(send())
    assert refusal is not None and refusal.remark == (
        "the message is of type NORMAL, topic[orders] takes FIFO (message.type); "
        "send it with the property __SHARDINGKEY, or set the topic's message.type to MIXED"
    )
