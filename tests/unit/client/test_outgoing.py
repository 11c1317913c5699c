"""Messages are checked and packed once, before anything leaves."""

from __future__ import annotations

import zlib
from random import Random

import pytest

from gantry.client.outgoing import BODY_BYTES_MAX, prepare, prepare_batch
from gantry.clock import SystemClock
from gantry.leaves import properties, records
from gantry.model.ids import UniqueIds
from gantry.model.message import SYS_COMPRESSED, Message

IDS = UniqueIds(bytes(4), 1, 1, SystemClock())


def test_properties_carry_tags_keys_and_the_id() -> None:
    outgoing = prepare(Message("T", b"x", "paid", "o-1 o-2", {"shop": "7"}), IDS, 5)
    assert properties.parse(outgoing.properties) == {
        "TAGS": "paid",
        "KEYS": "o-1 o-2",
        "shop": "7",
        "UNIQ_KEY": outgoing.message_ids[0],
    }
    assert (outgoing.body, outgoing.sys_flag, outgoing.born_ms, outgoing.is_batch) == (b"x", 0, 5, False)


def test_long_bodies_are_compressed_when_that_makes_them_shorter() -> None:
    outgoing = prepare(Message("T", b"x" * 5000), IDS, 0)
    assert zlib.decompress(outgoing.body) == b"x" * 5000
    assert outgoing.sys_flag == SYS_COMPRESSED
    noise = Random(1).randbytes(5000)
    assert prepare(Message("T", noise), IDS, 0).body == noise
    assert prepare(Message("T", b"x" * 5000), IDS, 0, compress_over=None).sys_flag == 0


def test_a_batch_splits_into_its_messages_again() -> None:
    outgoing = prepare_batch([Message("T", b"a", "x", flag=1), Message("T", b"b", "y")], IDS, 0)
    parts = records.split_batch(outgoing.body)
    assert [(flag, body) for flag, body, _ in parts] == [(1, b"a"), (0, b"b")]
    assert tuple(properties.parse(pairs)["UNIQ_KEY"] for _, _, pairs in parts) == outgoing.message_ids
    assert outgoing.is_batch


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (Message("", b"x"), "topic"),
        (Message("no blanks", b"x"), "topic"),
        (Message("T", bytes(BODY_BYTES_MAX + 1)), "bytes"),
        (Message("T", b"x", properties={"UNIQ_KEY": "1"}), "UNIQ_KEY"),
        (Message("T", b"x", properties={"a\x01b": "1"}), "0x01"),
        (Message("T", b"x", tags="a\x02b"), "TAGS"),
        (Message("T", b"x", keys=("a b",)), "blank"),
        (Message("T", b"x", properties={"a": "1" * 40_000}), "32767"),
    ],
)
def test_what_is_not_allowed_is_refused_before_it_leaves(message: Message, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        prepare(message, IDS, 0)


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ([], "without messages"),
        ([Message("T", b""), Message("U", b"")], "one topic"),
        ([Message("%RETRY%g", b"")], "retry"),
        ([Message("T", bytes(3 << 20))] * 2, "in parts"),
        ([Message("T", b"a"), Message("T", b"b", delay_level=1)], "delayed"),
    ],
)
def test_batches_that_brokers_would_refuse_are_refused_here(messages: list[Message], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        prepare_batch(messages, IDS, 0)
