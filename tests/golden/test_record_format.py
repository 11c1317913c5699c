"""The examples of broker/docs/record-format.md, worked out by hand, against the code."""

from __future__ import annotations

import re

import pytest

from gantry.leaves import frames, hashes, properties, queues, records
from testkit.sources import ROOT

DOCUMENT = (ROOT / "broker/docs/record-format.md").read_text(encoding="utf-8")
STORE_HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
BORN_HOST = bytes([192, 168, 0, 7, 0, 0, 0x9C, 0xB0])
LOG_OFFSET = 1_073_742_000
PROPERTIES = b"TAGS\x01paid\x02UNIQ_KEY\x01C0A800070A1B2C3D4E5F00000001002A\x02"


def example(name: str) -> bytes:
    """The bytes of a fenced example; every line begins with its position, which has to be right."""
    (text,) = re.findall(rf"```{name}\n(.*?)```", DOCUMENT, re.DOTALL)
    data = b""
    for line in text.splitlines():
        match = re.match(r" *([0-9]+)  ((?:[0-9a-f]{2}(?: |$))+)", line)
        assert match, line
        assert int(match[1]) == len(data), line
        data += bytes.fromhex(match[2])
    return data


def example_send() -> frames.Send:
    return frames.Send(
        topic="orders",
        queue_id=3,
        born_ms=1_700_000_000_000,
        properties=PROPERTIES,
        body=b"one espresso",
        born_host=BORN_HOST,
    )


def test_the_example_is_what_is_written() -> None:
    send = example_send()
    send.queue_offset = 41
    out = bytearray(200)
    end = records.encode_run(out, 7, LOG_OFFSET, [send], 1_700_000_000_012, STORE_HOST)
    assert bytes(out[7:end]) == example("record")
    assert (send.log_offset, send.size) == (LOG_OFFSET, 161)
    assert records.size_of(send) == 161


def test_the_example_reads_back_field_by_field() -> None:
    record = records.view(example("record"), 0, 161, check_crc=True)
    assert record.magic == records.MAGIC_V1 == 0xDAA320A7 - 2**32
    assert (record.size, record.queue_id, record.flag, record.queue_offset) == (161, 3, 0, 41)
    assert (record.log_offset, record.sys_flag, record.prepared_offset) == (LOG_OFFSET, 0, 0)
    assert (record.born_ms, record.store_ms) == (1_700_000_000_000, 1_700_000_000_012)
    assert (record.born_host, record.store_host, record.reconsume_times) == (BORN_HOST, STORE_HOST, 0)
    assert (record.body, record.body_crc) == (b"one espresso", 0x5865987C)
    assert (record.topic, record.properties) == ("orders", PROPERTIES)


def test_the_example_is_found_by_a_walk() -> None:
    data = example("record") + example("blank")
    entries, stop, reason = records.walk(data, 0, len(data), LOG_OFFSET, True)
    assert (stop, reason) == (161, "blank")
    (entry,) = entries
    assert (entry.topic, entry.queue_id, entry.queue_offset) == ("orders", 3, 41)
    assert (entry.unique_key, entry.keys) == (b"C0A800070A1B2C3D4E5F00000001002A", b"")
    assert (entry.log_offset, entry.size, entry.tags_code) == (LOG_OFFSET, 161, 3433164)


def test_the_blank_is_what_is_written() -> None:
    out = bytearray(12)
    records.encode_blank(out, 2, 8)
    assert bytes(out) == b"\0\0" + example("blank") + b"\0\0"


def test_the_queue_entry_is_what_is_written() -> None:
    assert queues.pack_entries([(LOG_OFFSET, 161, 3433164)]) == example("entry")
    assert queues.unpack(example("entry"), 0) == (LOG_OFFSET, 161, 3433164)


def test_the_batch_reads_as_its_message() -> None:
    assert records.split_batch(example("batch")) == [(5, b"hi", b"A\x01B\x02C")]
    assert properties.parse(b"A\x01B\x02C") == {"A": "B"}


def test_the_id_names_host_and_offset() -> None:
    (text,) = re.findall(r"```id\n(.*)\n```", DOCUMENT)
    assert records.offset_message_id(STORE_HOST, LOG_OFFSET) == text
    assert records.parse_offset_message_id(text) == ("10.0.0.1", 10911, LOG_OFFSET)


@pytest.mark.parametrize(("text", "value"), re.findall(r'java_hash\("(.*?)"\) +(-?[0-9]+)', DOCUMENT))
def test_the_java_hashes_are_right(text: str, value: str) -> None:
    assert hashes.java_hash(text.encode().decode("unicode_escape")) == int(value)


def test_the_checksum_is_right() -> None:
    (value,) = re.findall(r'crc31\("one espresso"\) +0x([0-9a-f]+)', DOCUMENT)
    assert hashes.crc31(b"one espresso") == int(value, 16)
    assert hashes.crc31(b"") == 0
