"""Properties: which pairs count, what the broker sees in them, and appending without damage."""

from __future__ import annotations

import pytest

from gantry.leaves import properties
from gantry.leaves.properties import (
    TRAIT_CHECK_IMMUNITY,
    TRAIT_DELAY,
    TRAIT_ENDS_OPEN,
    TRAIT_INNER_BATCH,
    TRAIT_LMQ,
    TRAIT_NAMES_DELAY,
    TRAIT_POP_CK,
    TRAIT_REPLY,
    TRAIT_SHARDING_KEY,
    TRAIT_TIMER_CANCEL,
    TRAIT_TRANSACTION,
    TRAIT_UNIQUE_KEY,
    TRAIT_WAIT_FALSE,
)

EVERY_TRAIT = 8191


def pairs(*items: tuple[str, str]) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in items).encode()


def traits_of(*items: tuple[str, str]) -> int:
    return properties.scan(pairs(*items))[0]


def test_what_the_broker_needs_is_found_in_one_pass() -> None:
    data = pairs(("KEYS", "a b"), ("own", "x"), ("UNIQ_KEY", "U1"), ("TAGS", "paid"))
    assert properties.scan(data) == (TRAIT_UNIQUE_KEY, b"U1", b"a b", 3433164)


def test_nothing_in_it_scans_as_nothing() -> None:
    assert properties.scan(b"") == (0, b"", b"", 0)


@pytest.mark.parametrize("data", [b"TAGS", b"TAGS\x01", b"\x01paid", b"\x02\x02", b"TAGS\x01\x02", b"TAGSpaid\x02"])
def test_a_pair_without_name_separator_or_value_does_not_count(data: bytes) -> None:
    assert properties.scan(data)[1:] == (b"", b"", 0)
    assert properties.parse(data) == {}
    assert properties.get(data, b"TAGS") is None


def test_a_value_may_hold_the_name_separator() -> None:
    assert properties.parse(b"KEYS\x01a\x01b\x02") == {"KEYS": "a\x01b"}
    assert properties.scan(b"KEYS\x01a\x01b\x02")[2] == b"a\x01b"


def test_the_later_of_two_equal_names_counts() -> None:
    data = pairs(("WAIT", "false"), ("WAIT", "true"), ("TAGS", "x"), ("TAGS", "paid"), ("DELAY", "3"), ("DELAY", "0"))
    assert properties.scan(data) == (TRAIT_NAMES_DELAY, b"", b"", 3433164)
    assert properties.get(data, b"TAGS") == b"paid"
    assert properties.parse(data)["WAIT"] == "true"


@pytest.mark.parametrize(
    "name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "__STARTDELIVERTIME"]
)
@pytest.mark.parametrize(("value", "asks"), [("1", True), ("0", False), ("00", False), ("-1", False), ("x", True)])
def test_a_delay_is_asked_for_unless_it_is_zero_or_negative(name: str, value: str, asks: bool) -> None:
    named = 0 if name == "__STARTDELIVERTIME" else TRAIT_NAMES_DELAY
    assert traits_of((name, value)) == (TRAIT_DELAY | named if asks else named)


def test_one_kind_of_delay_does_not_take_back_another() -> None:
    assert traits_of(("DELAY", "3"), ("TIMER_DELAY_MS", "0")) == TRAIT_DELAY | TRAIT_NAMES_DELAY
    assert traits_of(("TIMER_DELAY_MS", "3"), ("TIMER_DELAY_MS", "0")) == TRAIT_NAMES_DELAY


@pytest.mark.parametrize(
    ("name", "value", "trait"),
    [
        ("TRAN_MSG", "true", TRAIT_TRANSACTION),
        ("TRAN_MSG", "TRUE", TRAIT_TRANSACTION),
        ("TRAN_MSG", "1", 0),
        ("WAIT", "false", TRAIT_WAIT_FALSE),
        ("WAIT", "True", 0),
        ("MSG_TYPE", "reply", TRAIT_REPLY),
        ("MSG_TYPE", "Reply", 0),
        ("POP_CK", "x", TRAIT_POP_CK),
        ("INNER_MULTI_DISPATCH", "x", TRAIT_LMQ),
        ("CHECK_IMMUNITY_TIME_IN_SECONDS", "x", TRAIT_CHECK_IMMUNITY),
        ("INNER_NUM", "x", TRAIT_INNER_BATCH),
        ("TIMER_DEL_UNIQKEY", "x", TRAIT_TIMER_CANCEL),
        ("UNIQ_KEY", "x", TRAIT_UNIQUE_KEY),
        ("__SHARDINGKEY", "x", TRAIT_SHARDING_KEY),
    ],
)
def test_a_trait_follows_from_its_property(name: str, value: str, trait: int) -> None:
    assert traits_of((name, value)) == trait


def test_traits_are_bits_of_their_own() -> None:
    traits = [value for name, value in vars(properties).items() if name.startswith("TRAIT_")]
    assert sum(traits) == EVERY_TRAIT
    assert len(set(traits)) == len(traits)


def test_a_string_without_its_last_separator_ends_open() -> None:
    assert properties.scan(b"TAGS\x01paid") == (TRAIT_ENDS_OPEN, b"", b"", 3433164)


def test_adding_closes_what_ends_open() -> None:
    assert properties.add(b"A\x01B", b"C", b"D") == b"A\x01B\x02C\x01D\x02"
    assert properties.add(b"A\x01B\x02", b"C", b"D") == b"A\x01B\x02C\x01D\x02"
    assert properties.add(b"", b"C", b"D") == b"C\x01D\x02"


@pytest.mark.parametrize(
    ("name", "value"), [(b"", b"v"), (b"n", b""), (b"n\x01", b"v"), (b"n\x02", b"v"), (b"n", b"v\x02")]
)
def test_a_pair_that_would_read_as_something_else_is_not_added(name: bytes, value: bytes) -> None:
    with pytest.raises(ValueError, match="not a pair"):
        properties.add(b"", name, value)


def test_what_is_packed_reads_back() -> None:
    table = {"TAGS": "paid", "\u4f60": "\u597d \U0001f600"}
    assert properties.parse(properties.pack(table)) == table


def test_an_empty_value_is_left_out() -> None:
    assert properties.pack({"a": "", "": "b", "c": "d"}) == b"c\x01d\x02"


@pytest.mark.parametrize("pair", [("a\x01", "b"), ("a\x02", "b"), ("a", "b\x01"), ("a", "b\x02")])
def test_a_separator_inside_a_pair_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="neither 0x01 nor 0x02"):
        properties.pack(dict([pair]))


def test_text_that_is_not_utf8_reads_with_replacements() -> None:
    assert properties.parse(b"a\xff\x01\xfe\x02") == {"a\ufffd": "\ufffd"}
