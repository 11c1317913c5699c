"""Stored bytes as messages, and batch bodies."""

from __future__ import annotations

import zlib

import pytest

from gantry.errors import LocalProtocolError, RemoteProtocolError
from gantry.leaves import frames, properties, records
from gantry.wire import record

V4 = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
V6 = bytes([0x20, 1, 0xD, 0xB8]) + bytes(11) + b"\1" + bytes([0, 0, 0x2A, 0x9F])


def stored(*bodies: bytes, sys_flag: int = 0) -> bytearray:
    sends = []
    for number, body in enumerate(bodies):
        send = frames.Send(
            topic="orders", body=body, born_host=V6, sys_flag=sys_flag, properties=properties.pack({"TAGS": "paid"})
        )
        send.queue_offset = number
        sends.append(send)
    out = bytearray(sum(map(records.size_of, sends)))
    records.encode_run(out, 0, 500, sends, 9, V4)
    return out


def test_an_answer_is_its_messages_in_order() -> None:
    data = stored(b"one", b"two")
    one, two = record.messages(data, "broker-a")
    assert (one.body, two.body, one.queue_offset, two.queue_offset) == (b"one", b"two", 0, 1)
    assert (one.topic, one.tags, one.broker_name, one.store_ms) == ("orders", "paid", "broker-a", 9)
    assert (one.store_host, one.born_host) == ("10.0.0.1:10911", "[2001:db8:0:0:0:0:0:1]:10911")
    assert one.offset_message_id == "0A00000100002A9F00000000000001F4"
    assert two.log_offset == 500 + one.size


def test_no_bytes_are_no_messages() -> None:
    assert record.messages(b"") == []


@pytest.mark.parametrize("kind", [0x0, 0x300])
def test_a_compressed_body_comes_decompressed(kind: int) -> None:
    (message,) = record.messages(stored(zlib.compress(b"espresso " * 100), sys_flag=0x1 | kind))
    assert message.body == b"espresso " * 100


def test_a_compression_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(RemoteProtocolError, match="message at 500 is compressed with kind 0x400"):
        record.messages(stored(b"x", sys_flag=0x1 | 0x400))


@pytest.mark.parametrize("body", [b"", b"not zlib", zlib.compress(b"x" * 1000)[:-3]])
def test_a_body_that_does_not_decompress_breaks_the_protocol(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        record.messages(stored(body, sys_flag=0x1))


def test_a_damaged_answer_says_how_many_were_good() -> None:
    data = stored(b"one", b"two")
    data[data.index(b"two")] ^= 0xFF
    with pytest.raises(RemoteProtocolError, match="answer with 1 good records"):
        record.messages(data)
    with pytest.raises(RemoteProtocolError, match="answer with 2 good records"):
        record.messages(stored(b"one", b"two") + b"\0")


def test_a_batch_splits_as_it_was_joined() -> None:
    batch = [(1, b"one", b"a\x01b\x02"), (0, b"", b"")]
    assert records.split_batch(record.join_batch(batch)) == batch


def test_properties_beyond_the_format_are_refused_before_they_are_sent() -> None:
    with pytest.raises(LocalProtocolError, match="32767"):
        record.join_batch([(0, b"", b"x" * 32768)])
