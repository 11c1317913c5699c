"""A batch request taken apart."""

from __future__ import annotations

from collections.abc import Sequence

from gantry.append.admit import MessageLimits
from gantry.append.topiclimits import TopicLimits
from gantry.errors import Refusal
from gantry.leaves import frames, properties
from gantry.produce.batches import messages_of
from testkit.sendplay import message

LIMITS = MessageLimits(10_000, 1000)


def entry(flag: int, body: bytes, packed: bytes = b"") -> bytes:
    size = 22 + len(body) + len(packed)
    head = size.to_bytes(4, "big") + bytes(8) + flag.to_bytes(4, "big") + len(body).to_bytes(4, "big")
    return head + body + len(packed).to_bytes(2, "big") + packed


def no_one(sends: Sequence[frames.Send]) -> bool:
    """Have every message looked at."""
    return False


def taken(request: frames.Send, topic: TopicLimits | None = None) -> list[frames.Send]:
    found = messages_of(request, LIMITS, 10, topic, no_one)
    assert not isinstance(found, Refusal) and found[1] is False
    return found[0]


def test_messages_share_the_header_and_have_their_own_flag_body_and_properties() -> None:
    body = entry(7, b"a", properties.pack({"TAGS": "x", "UNIQ_KEY": "1"})) + entry(8, b"b")
    request = message("orders", body, {}, queue_id=3, sys_flag=1, born_ms=17, batch=True)
    found = taken(request)
    assert [(send.flag, send.body) for send in found] == [(7, b"a"), (8, b"b")]
    assert {(send.topic, send.queue_id, send.sys_flag, send.born_ms) for send in found} == {("orders", 3, 1, 17)}
    assert found[0].tags_code and found[0].unique_key == b"1" and not found[1].tags_code


def test_properties_of_the_header_belong_to_all_unless_a_message_says_otherwise() -> None:
    body = entry(0, b"a", b"TAGS\x01own\x02") + entry(0, b"b")
    request = message("orders", body, {"TAGS": "shared", "more": "1"}, batch=True)
    request.properties = request.properties.rstrip(b"\x02")
    found = taken(request)
    assert [properties.parse(send.properties) for send in found] == [
        {"TAGS": "own", "more": "1"},
        {"TAGS": "shared", "more": "1"},
    ]


def test_properties_too_long_together_are_refused() -> None:
    body = entry(0, b"a", b"p\x01" + b"x" * 1000 + b"\x02")
    refused = messages_of(message("orders", body, {"q": "y" * 1000}, batch=True), LIMITS, 10, None, no_one)
    assert isinstance(refused, Refusal) and refused.code == 13


def test_each_message_is_held_to_its_topics_own_limits() -> None:
    own = TopicLimits("orders", body_bytes_max=3, property_count_max=1)
    inside = message("orders", entry(0, b"abc", b"a\x011\x02") + entry(0, b"abc"), {}, batch=True)
    assert len(taken(inside, own)) == 2
    outside = message("orders", entry(0, b"abc") + entry(0, b"abcd"), {}, batch=True)
    refused = messages_of(outside, LIMITS, 10, own, no_one)
    assert isinstance(refused, Refusal)
    assert refused.remark.startswith("message 1 of the batch: the message body has 4 bytes")


def test_a_batch_of_too_many_messages_is_counted_and_not_built() -> None:
    request = message("orders", entry(0, b"") * 11, {}, batch=True)
    refused = messages_of(request, LIMITS, 10, None, no_one)
    assert isinstance(refused, Refusal) and refused.remark == "the batch has 11 messages, 10 are allowed"
