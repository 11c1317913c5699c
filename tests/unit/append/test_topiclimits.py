"""What a topic allows by its attributes."""

from __future__ import annotations

import pytest

from gantry.append.topiclimits import limits_of
from gantry.leaves import properties


def code(attributes: dict[str, str], body: bytes = b"", packed: bytes = b"") -> int:
    limits = limits_of("orders", attributes)
    refusal = None if limits is None else limits.refusal(body, packed)
    return 0 if refusal is None else refusal.code


def test_a_topic_without_such_attributes_has_no_limits() -> None:
    assert limits_of("orders", {"message.type": "FIFO"}) is None


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
    refusal = None if limits is None else limits.refusal(bytes(11), b"")
    assert refusal is not None
    assert refusal.remark == "the message body has 11 bytes, topic[orders] allows 10 (message.size.max)"


def test_what_was_edited_by_hand_and_is_no_number_limits_nothing() -> None:
    assert code({"message.size.max": "ten", "property.count.max": "-1"}, bytes(100), b"a\x011\x02") == 0
