"""Stored bytes as messages, and batch bodies."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest

from gantry.errors import LocalProtocolError, RemoteProtocolError
from gantry.leaves import frames, properties, records
from gantry.model.message import StoredMessage
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


@pytest.mark.parametrize("read", [record.messages, record.pulled])
@pytest.mark.parametrize(
    ("body", "kind", "error"),
    [
        (b"x", 0x400, "compressed with kind 0x400"),
        (b"", 0, "cut off"),
        (b"not zlib", 0, "does not decompress"),
        (zlib.compress(b"x" * 1000)[:-3], 0x300, "cut off"),
    ],
)
def test_a_body_that_cannot_be_decompressed_comes_as_it_is_stored(
    read: Callable[[bytes], list[StoredMessage]], body: bytes, kind: int, error: str
) -> None:
    good = zlib.compress(b"good")
    one, two, three = read(bytes(stored(good) + stored(body, sys_flag=0x1 | kind) + stored(b"plain")))
    assert (one.body, one.decode_error, three.body, three.decode_error) == (good, "", b"plain", "")
    assert two.body == body and error in two.decode_error


def test_of_an_answer_to_a_pull_a_body_that_is_damaged_comes_as_it_is_stored() -> None:
    data = stored(b"one", b"two", b"three")
    data[data.index(b"two")] ^= 0xFF
    one, two, three = record.pulled(data)
    assert (one.decode_error, three.decode_error) == ("", "") and "damaged" in two.decode_error
    assert two.queue_offset == 1


def test_of_an_answer_to_a_pull_a_record_that_cannot_be_read_stops_nothing() -> None:
    good, bad = stored(b"one", b"two", b"three"), stored(b"bad")
    bad[20:28] = (7).to_bytes(8, "big")  # its queue offset
    bad[bad.index(b"bad") - 3] ^= 0x40  # its body's length
    assert [one.body for one in record.pulled(good + bad + good)] == [b"one", b"two", b"three"], "the next pull has it"
    damaged, *others = record.pulled(bad + good, "b", "T")
    assert [one.body for one in others] == [b"one", b"two", b"three"]
    assert (damaged.body, damaged.topic, damaged.queue_offset, damaged.size) == (bad, "T", 7, len(bad))
    assert "damaged" in damaged.decode_error and others[0].decode_error == ""
    assert len(record.pulled(good + bytes(1))) == 3
    for garbage in (bytes(1), bytes(100), bad[:-1], b"\x7f" * 200):
        with pytest.raises(RemoteProtocolError, match="begins with no record"):
            record.pulled(garbage)


def test_an_answer_ends_where_its_bodies_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "INFLATED_BYTES_MAX", 1500)
    data = stored(*[zlib.compress(b"x" * 1000)] * 4, sys_flag=0x1)
    assert [one.queue_offset for one in record.pulled(data)] == [0, 1]


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
