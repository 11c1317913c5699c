"""Texts as numbers and truths, and which sends and pulls are well-formed."""

from __future__ import annotations

import pytest

from gantry.leaves import fields
from gantry.leaves.requests import End, Pull, Send
from testkit.feeding import PULL_EXT, SEND_EXT, long_names


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+5", 5),
        ("007", 7),
        ("-1", -1),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("0" * 5000 + "5", 5),
    ],
)
def test_a_sign_and_digits_are_an_integer(text: str, number: int) -> None:
    assert fields.integer(text) == number


@pytest.mark.parametrize(
    "text",
    [
        *["", " 5", "5 ", "5\n", "1_0", "--1", "+", "-", "1.0", "1e3", "0x1", "true", "\u0665", "\uff15", "\u00b2"],
        *["9223372036854775808", "-9223372036854775809", "9" * 5000],
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert fields.integer(text) is None


def test_a_number_outside_its_range_is_none() -> None:
    assert fields.integer("2147483648", fields.I32_MIN, fields.I32_MAX) is None
    assert fields.integer("-2147483649", fields.I32_MIN, fields.I32_MAX) is None


@pytest.mark.parametrize(
    ("text", "truth"),
    [("true", True), ("TRUE", True), ("1", True), ("0", False), ("", False), ("yes", False), ("01", False)],
)
def test_true_and_one_are_true(text: str, truth: bool) -> None:
    assert fields.boolean(text) is truth


def request(code: int, ext: dict[str, str]) -> Send | Pull | End | None:
    return fields.hot_request(code, 0, 401, 7, 0, 0, ext, b"body")


@pytest.mark.parametrize("code", [310, 320])
def test_a_send_has_its_fields_typed(code: int) -> None:
    send = request(code, {**SEND_EXT, "l": "16", "n": "broker-a"})
    assert isinstance(send, Send)
    assert (send.code, send.version, send.opaque, send.body) == (code, 401, 7, b"body")
    assert (send.group, send.topic, send.default_topic, send.default_queues) == (
        "orders-producer",
        "orders",
        "TBW102",
        4,
    )
    assert (send.queue_id, send.born_ms, send.max_reconsume_times) == (3, 1_700_000_000_000, 16)
    assert (send.tags_code, send.unique_key) == (3433164, b"C0A800070A1B2C3D4E5F00000001002A")
    assert (send.queue_offset, send.log_offset, send.size) == (-1, -1, 0)


def test_code_10_names_its_fields_in_full() -> None:
    assert isinstance(request(10, {name: str(value) for name, value in long_names(SEND_EXT).items()}), Send)


def test_names_of_the_other_kind_do_not_count() -> None:
    assert request(10, SEND_EXT) is None
    assert request(310, {name: str(value) for name, value in long_names(SEND_EXT).items()}) is None


@pytest.mark.parametrize("name", "abcdefgh")
def test_a_send_without_a_mandatory_field_is_not_well_formed(name: str) -> None:
    assert request(310, {key: value for key, value in SEND_EXT.items() if key != name}) is None


@pytest.mark.parametrize("name", "defghjl")
@pytest.mark.parametrize("value", ["x", "1.5", "9223372036854775808"])
def test_a_send_with_an_ill_typed_number_is_not_well_formed(name: str, value: str) -> None:
    assert request(310, {**SEND_EXT, name: value}) is None


@pytest.mark.parametrize("name", "defhjl")
def test_a_32_bit_number_of_33_bits_is_ill_typed(name: str) -> None:
    assert request(310, {**SEND_EXT, name: "2147483648"}) is None
    assert request(310, {**SEND_EXT, name: "2147483647"}) is not None


@pytest.mark.parametrize("name", "ijklm")
def test_an_optional_field_may_be_missing_or_empty(name: str) -> None:
    assert request(310, {**SEND_EXT, name: ""}) is not None
    assert request(310, {key: value for key, value in SEND_EXT.items() if key != name}) is not None


def test_what_is_missing_has_its_default() -> None:
    send = request(310, {name: SEND_EXT[name] for name in "abcdefgh"})
    assert isinstance(send, Send)
    assert (send.properties, send.reconsume_times, send.max_reconsume_times) == (b"", 0, -1)
    assert (send.unit_mode, send.batch, send.traits) == (False, False, 0)


def test_cpp_clients_say_one_for_true() -> None:
    send = request(320, {**SEND_EXT, "m": "1", "k": "0"})
    assert isinstance(send, Send)
    assert (send.batch, send.unit_mode) == (True, False)


@pytest.mark.parametrize("code", [11, 361])
def test_a_pull_has_its_fields_typed(code: int) -> None:
    pull = request(code, {**PULL_EXT, "subscription": "*", "maxMsgBytes": "1024", "commitOffset": "-1"})
    assert isinstance(pull, Pull)
    assert (pull.code, pull.group, pull.topic, pull.queue_id) == (code, "orders-consumer", "orders", 3)
    assert (pull.queue_offset, pull.count_max, pull.commit_offset, pull.suspend_ms) == (41, 32, -1, 15_000)
    assert (pull.subscription, pull.expression_type, pull.bytes_max) == ("*", "TAG", 1024)


def test_what_a_pull_does_not_say_is_absent() -> None:
    pull = request(11, {name: value for name, value in PULL_EXT.items() if name != "expressionType"})
    assert isinstance(pull, Pull)
    assert (pull.subscription, pull.expression_type, pull.bytes_max) == (None, None, -1)


@pytest.mark.parametrize("name", [name for name in PULL_EXT if name != "expressionType"])
def test_a_pull_without_a_mandatory_field_is_not_well_formed(name: str) -> None:
    assert request(11, {key: value for key, value in PULL_EXT.items() if key != name}) is None


END_EXT = {
    "producerGroup": "payers",
    "tranStateTableOffset": "41",
    "commitLogOffset": "900",
    "commitOrRollback": "8",
    "fromTransactionCheck": "True",
    "msgId": "K1",
}


def test_the_end_of_a_transaction_has_its_fields_typed() -> None:
    end = request(37, END_EXT | {"transactionId": "K2", "topic": "orders"})
    assert isinstance(end, End)
    assert (end.group, end.queue_offset, end.log_offset, end.kind, end.from_check) == ("payers", 41, 900, 8, True)
    assert (end.message_id, end.transaction_id, end.opaque, end.is_oneway) == ("K1", "K2", 7, False)


@pytest.mark.parametrize("name", ["producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback"])
def test_an_end_that_lacks_a_field_or_has_an_ill_typed_one_is_none(name: str) -> None:
    assert request(37, {key: value for key, value in END_EXT.items() if key != name}) is None
    assert (request(37, END_EXT | {name: "x1"}) is None) == (name != "producerGroup")
