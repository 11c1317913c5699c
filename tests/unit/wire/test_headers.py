"""Header fields by name, kind and duty."""

from __future__ import annotations

import pytest

from gantry.wire import headers
from gantry.wire.codes import RequestCode
from gantry.wire.headers import HeaderError
from testkit.feeding import LONG_NAMES, PULL_EXT, SEND_EXT


def test_values_come_typed_by_their_wire_names() -> None:
    header = headers.parse(RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "g", "topic": "t", "queueId": "3"})
    assert (header.text("consumerGroup"), header.integer("queueId")) == ("g", 3)
    assert header.boolean("setZeroIfNotFound") is True


def test_a_missing_mandatory_field_is_named() -> None:
    with pytest.raises(HeaderError, match="header field topic is missing"):
        headers.parse(RequestCode.GET_ROUTEINFO_BY_TOPIC, {})
    with pytest.raises(HeaderError, match="header field queueId is missing"):
        headers.parse(RequestCode.GET_MAX_OFFSET, {"topic": "t", "queueId": ""})


@pytest.mark.parametrize(("value", "kind"), [("x", "32-bit"), ("2147483648", "32-bit"), ("1.0", "32-bit")])
def test_an_ill_typed_field_is_named_with_its_kind(value: str, kind: str) -> None:
    with pytest.raises(HeaderError, match=f"header field queueId is no {kind} integer"):
        headers.parse(RequestCode.GET_MAX_OFFSET, {"topic": "t", "queueId": value})


def test_a_hostile_value_does_not_fill_a_remark() -> None:
    with pytest.raises(HeaderError) as caught:
        headers.parse(RequestCode.GET_MAX_OFFSET, {"topic": "t", "queueId": "x" * 100_000})
    assert len(str(caught.value)) < 200


def test_an_empty_text_is_a_text_and_an_empty_number_is_missing() -> None:
    header = headers.parse(RequestCode.UNREGISTER_CLIENT, {"clientID": "", "producerGroup": ""})
    assert (header.has("clientID"), header.has("producerGroup"), header.has("consumerGroup")) == (True, True, False)
    assert header.text("consumerGroup", "none") == "none"
    header = headers.parse(RequestCode.GET_MAX_OFFSET, {"topic": "t", "queueId": "0", "committed": ""})
    assert header.boolean("committed") is True


@pytest.mark.parametrize(("text", "truth"), [("true", True), ("1", True), ("false", False), ("no", False)])
def test_a_boolean_is_whatever_the_client_meant(text: str, truth: bool) -> None:
    ext = {"topic": "t", "acceptStandardJsonOnly": text}
    assert headers.parse(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext).boolean("acceptStandardJsonOnly", not truth) is truth


def test_unknown_fields_are_ignored_and_unknown_names_are_our_bug() -> None:
    header = headers.parse(RequestCode.GET_TOPIC_CONFIG, {"topic": "t", "nsd": "false"})
    with pytest.raises(KeyError):
        header.text("nsd")
    with pytest.raises(AssertionError):
        header.integer("topic")


def test_a_reply_is_read_the_same_way() -> None:
    header = headers.parse_reply(RequestCode.GET_MAX_OFFSET, {"offset": "9223372036854775807"})
    assert header.integer("offset") == 2**63 - 1
    with pytest.raises(HeaderError, match="offset"):
        headers.parse_reply(RequestCode.GET_MAX_OFFSET, {})


def test_values_are_written_as_java_writes_them() -> None:
    assert headers.to_ext(a="x", b=5, c=True, d=False, e=None) == {"a": "x", "b": "5", "c": "true", "d": "false"}


def test_an_ill_formed_hot_request_is_told_what_it_lacks() -> None:
    with pytest.raises(HeaderError, match="header field e is missing"):
        headers.parse(RequestCode.SEND_MESSAGE_V2, {name: value for name, value in SEND_EXT.items() if name != "e"})
    with pytest.raises(HeaderError, match="header field subVersion is missing"):
        headers.parse(
            RequestCode.PULL_MESSAGE, {name: value for name, value in PULL_EXT.items() if name != "subVersion"}
        )


def test_letters_and_names_of_a_send_are_the_same_fields_in_the_same_order() -> None:
    letters = headers.REQUESTS[RequestCode.SEND_MESSAGE_V2]
    names = headers.REQUESTS[RequestCode.SEND_MESSAGE]
    by_letter = {**LONG_NAMES, "n": "bname"}
    kinds = {field.name: (field.kind, field.is_mandatory) for field in names}
    assert {by_letter[field.name]: (field.kind, field.is_mandatory) for field in letters} == kinds
