"""Messages to send and messages received."""

from __future__ import annotations

from typing import Any

import pytest

from gantry.model.message import (
    SYS_COMMIT,
    SYS_COMPRESSED,
    SYS_COMPRESSION_MASK,
    SYS_LZ4,
    SYS_MULTI_TAGS,
    SYS_PREPARED,
    SYS_ROLLBACK,
    SYS_TRANSACTION_MASK,
    SYS_ZLIB,
    SYS_ZSTD,
    Message,
    StoredMessage,
    property_fault,
)
from testkit.sources import ROOT


def stored(**properties: str) -> StoredMessage:
    return StoredMessage("t", b"", properties, 0, 0, 0, 0, 0, 0, 0, "", 0, "", 0, 0, "0A")


def test_the_bits_of_the_sys_flag_are_those_of_the_format() -> None:
    document = (ROOT / "broker/docs/record-format.md").read_text(encoding="utf-8")
    assert (SYS_COMPRESSED, SYS_MULTI_TAGS, SYS_TRANSACTION_MASK, SYS_COMPRESSION_MASK) == (0x1, 0x2, 0xC, 0x700)
    assert f"0x0 none, {SYS_PREPARED:#x} prepared, {SYS_COMMIT:#x} commit, 0x{SYS_ROLLBACK:X} rollback" in document
    assert f"{SYS_LZ4:#x} LZ4, {SYS_ZSTD:#x} ZSTD, {SYS_ZLIB:#x} zlib" in document


def test_tags_and_keys_become_properties() -> None:
    message = Message("t", b"x", tags="paid", keys=("k1", "k2"), properties={"own": "1"})
    assert message.all_properties() == {"own": "1", "TAGS": "paid", "KEYS": "k1 k2"}
    assert Message("t", b"x").all_properties() == {}


@pytest.mark.parametrize("name", ["TAGS", "DELAY", "TRAN_MSG", "__RMQ.TRANSIENT.x"])
def test_a_reserved_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="meaning of its own"):
        Message("t", b"x", properties={name: "1"}).all_properties()


@pytest.mark.parametrize(("name", "value"), [("", "v"), ("n", ""), ("n\x01", "v"), ("n", "v\x02")])
def test_a_property_that_cannot_be_stored_is_refused(name: str, value: str) -> None:
    assert property_fault(name, value) is not None
    assert property_fault("n", "v") is None


@pytest.mark.parametrize("key", ["", "a b", "a\x01", "a\x02"])
def test_a_key_that_would_read_as_something_else_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        Message("t", b"x", keys=(key,)).all_properties()


def test_a_message_is_known_by_its_producers_id_or_else_by_its_place() -> None:
    assert stored(UNIQ_KEY="U").message_id == "U"
    assert stored().message_id == "0A"


def test_tags_and_keys_of_a_received_message() -> None:
    message = stored(TAGS="paid", KEYS="a  b")
    assert (message.tags, message.keys) == ("paid", ("a", "b"))
    assert (stored().tags, stored().keys) == ("", ())


@pytest.mark.parametrize(
    ("wish", "property_"),
    [
        ({"delay_level": 3}, ("DELAY", "3")),
        ({"delay_s": 1.5}, ("TIMER_DELAY_MS", "1500")),
        ({"delay_s": 0.0001}, ("TIMER_DELAY_MS", "1")),
        ({"deliver_at_ms": 1_700_000_000_000}, ("TIMER_DELIVER_MS", "1700000000000")),
    ],
    ids=str,
)
def test_a_wish_for_later_delivery_is_a_property(wish: dict[str, Any], property_: tuple[str, str]) -> None:
    message = Message("T", b"", **wish)
    assert message.is_delayed
    assert list(message.all_properties().items()) == [property_]


@pytest.mark.parametrize(
    "wish", [{"delay_level": 1, "delay_s": 1.0}, {"delay_s": -1.0}, {"deliver_at_ms": -5}], ids=str
)
def test_a_wish_that_cannot_be_meant_is_refused(wish: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at most one"):
        Message("T", b"", **wish).all_properties()
