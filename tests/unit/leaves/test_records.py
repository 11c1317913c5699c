"""Records: written runs read back, a walk stops at the first thing that is not a record, ids and batches."""

from __future__ import annotations

import struct

import pytest

from gantry.errors import CorruptRecordError
from gantry.leaves import frames, records

V4 = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
V6 = bytes(range(16)) + bytes([0, 0, 0x2A, 0x9F])
BASE = 5_000


def send(number: int = 0, **fields: object) -> frames.Send:
    values: dict[str, object] = {
        "topic": "orders",
        "queue_id": 3,
        "body": b"body %d" % number,
        "properties": b"KEYS\x01k%d\x02TAGS\x01paid\x02" % number,
        "born_host": V4,
        "born_ms": 7,
        **fields,
    }
    made = frames.Send(**values)  # type: ignore[arg-type]
    made.queue_offset = number
    return made


def run_of(*sends: frames.Send, store_host: bytes = V4) -> bytearray:
    out = bytearray(sum(records.size_of(each, len(store_host)) for each in sends))
    assert records.encode_run(out, 0, BASE, sends, 99, store_host) == len(out)
    return out


def reason_of(data: bytes | bytearray, check_crc: bool = True) -> str:
    entries, stop, reason = records.walk(data, 0, len(data), BASE, check_crc)
    assert (entries, stop) == ([], 0)
    return reason


def test_a_run_reads_back_as_its_messages() -> None:
    sends = [send(number) for number in range(5)]
    data = run_of(*sends)
    entries, stop, reason = records.walk(data, 0, len(data), BASE, True)
    assert (stop, reason) == (len(data), "end")
    assert [entry.queue_offset for entry in entries] == [0, 1, 2, 3, 4]
    assert [entry.keys for entry in entries] == [b"k0", b"k1", b"k2", b"k3", b"k4"]
    assert [(entry.log_offset, entry.size) for entry in entries] == [(each.log_offset, each.size) for each in sends]
    assert {entry.store_ms for entry in entries} == {99}


def test_every_byte_of_a_run_is_written() -> None:
    first, second = bytearray(b"\xff" * 600), bytearray(600)
    ends = [records.encode_run(out, 13, BASE, [send(1), send(2, topic="t" * 130)], 99, V6) for out in (first, second)]
    assert ends[0] == ends[1]
    assert first[13 : ends[0]] == second[13 : ends[0]]
    assert bytes(first[:13] + first[ends[0] :]) == b"\xff" * (613 - ends[0])


@pytest.mark.parametrize(("born", "store", "bits"), [(V4, V4, 0), (V6, V4, 0x10), (V4, V6, 0x20), (V6, V6, 0x30)])
def test_the_host_bits_follow_the_addresses_and_not_the_client(born: bytes, store: bytes, bits: int) -> None:
    for claimed in (0, 0x30):
        data = run_of(send(born_host=born, sys_flag=claimed | 0x103), store_host=store)
        record = records.view(data, 0, len(data))
        assert record.sys_flag == 0x103 | bits
        assert (record.born_host, record.store_host) == (born, store)
        assert records.walk(data, 0, len(data), BASE, True)[2] == "end"


@pytest.mark.parametrize(("length", "magic"), [(1, records.MAGIC_V1), (127, records.MAGIC_V1), (128, records.MAGIC_V2)])
def test_a_topic_beyond_127_bytes_makes_a_v2_record(length: int, magic: int) -> None:
    data = run_of(send(topic="t" * length))
    record = records.view(data, 0, len(data))
    assert (record.magic, record.topic) == (magic, "t" * length)


def test_a_topics_length_counts_in_bytes() -> None:
    data = run_of(send(topic="\u4f60" * 43))
    assert records.view(data, 0, len(data)).magic == records.MAGIC_V2


def test_an_empty_body_and_no_properties_are_fine() -> None:
    data = run_of(send(body=b"", properties=b""))
    record = records.view(data, 0, len(data), check_crc=True)
    assert (record.body, record.body_crc, record.properties) == (b"", 0, b"")


def test_numbers_at_their_limits_are_kept() -> None:
    big = send(flag=-(2**31), born_ms=2**63 - 1, reconsume_times=2**31 - 1, prepared_offset=2**62, queue_id=2**31 - 1)
    big.queue_offset = 2**63 - 1
    record = records.view(run_of(big), 0, 200)
    assert (record.flag, record.born_ms, record.reconsume_times) == (-(2**31), 2**63 - 1, 2**31 - 1)
    assert (record.prepared_offset, record.queue_id, record.queue_offset) == (2**62, 2**31 - 1, 2**63 - 1)


def test_a_run_without_room_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        records.encode_run(bytearray(100), 0, 0, [send()], 0, V4)
    with pytest.raises(AssertionError):
        records.encode_run(bytearray(500), 0, 0, [send(born_host=b"")], 0, V4)
    with pytest.raises(AssertionError):
        records.encode_run(bytearray(500), 0, 0, [send(topic="")], 0, V4)
    with pytest.raises(AssertionError):
        records.encode_run(bytearray(90_000), 0, 0, [send(properties=b"x" * 32768)], 0, V4)


def test_a_walk_stops_at_a_blank() -> None:
    data = run_of(send()) + bytearray(40)
    at = len(data) - 40
    records.encode_blank(data, at, 40)
    entries, stop, reason = records.walk(data, 0, len(data), BASE, True)
    assert (len(entries), stop, reason) == (1, at, "blank")


@pytest.mark.parametrize("size", [7, 41, 0, -1])
def test_a_blank_that_does_not_fit_is_bad(size: int) -> None:
    data = struct.pack(">ii", size, records.MAGIC_BLANK) + bytes(32)
    assert reason_of(data).startswith("bad: ")


def test_a_walk_stops_where_nothing_was_written() -> None:
    data = run_of(send()) + bytes(500)
    entries, stop, reason = records.walk(data, 0, len(data), BASE, True)
    assert (len(entries), stop, reason) == (1, len(data) - 500, "zero")


@pytest.mark.parametrize("left", range(8))
def test_less_than_a_head_is_the_end(left: int) -> None:
    assert reason_of(b"\xff" * left) == "end"


def test_a_walk_takes_no_more_than_it_is_asked_for() -> None:
    data = run_of(send(0), send(1), send(2))
    entries, stop, reason = records.walk(data, 0, len(data), BASE, True, 2)
    assert (len(entries), reason) == (2, "more")
    assert records.walk(data, stop, len(data), BASE + stop, True)[0][0].queue_offset == 2


def test_a_walk_may_begin_anywhere_in_a_buffer() -> None:
    data = b"\xff" * 33 + bytes(run_of(send(4))) + b"\xff" * 33
    entries, stop, reason = records.walk(memoryview(data), 33, len(data) - 33, BASE, True)
    assert (entries[0].queue_offset, stop, reason) == (4, len(data) - 33, "end")


def test_a_range_that_ends_inside_a_record_is_bad_there() -> None:
    data = run_of(send())
    for end in range(8, len(data)):
        entries, stop, reason = records.walk(data, 0, end, BASE, True)
        assert (entries, stop) == ([], 0)
        assert reason.startswith("bad: record at 5000 ")


def test_whole_records_are_found_by_their_sizes_up_to_a_number_of_bytes_and_the_first_in_any_case() -> None:
    data = run_of(*[send(number) for number in range(3)])
    size = len(data) // 3
    assert records.whole(data, 0, len(data), len(data)) == (len(data), "")
    assert records.whole(data, 0, len(data), len(data) - 1) == (2 * size, "")
    assert records.whole(data, size, len(data), size) == (2 * size, "")
    assert records.whole(data, 0, len(data), 1) == (size, "")
    assert records.whole(data, 0, 0, size) == (0, "")


def test_whole_records_end_at_a_blank_and_what_is_none_is_bad() -> None:
    data = run_of(send())
    size = len(data)
    blank = bytearray(100)
    records.encode_blank(blank, 0, 100)
    assert records.whole(data + blank, 0, size + 100, 1 << 20) == (size, "blank")
    for odd in (bytes(100), b"\0\0", data[:-1], struct.pack(">ii", 90, records.MAGIC_V1) + bytes(92)):
        assert records.whole(data + odd, 0, size + len(odd), 1 << 20) == (size, "bad")


def test_a_record_that_stands_elsewhere_is_none() -> None:
    data = run_of(send())
    entries, stop, reason = records.walk(data, 0, len(data), BASE + 1, True)
    assert (entries, stop, reason) == ([], 0, "bad: record at 5001 says it stands at 5000")
    shifted = bytearray(b"\xff" * 9) + data
    assert records.walk(shifted, 9, len(shifted), 7, True)[2] == "bad: record at 7 says it stands at 5000"
    shifted[9 + 4] = 0
    assert records.walk(shifted, 9, len(shifted), 7, True)[2].startswith("bad: record at 7 has the magic")


def test_a_record_inside_a_body_is_not_found_behind_damage() -> None:
    inner = run_of(send(9))
    data = run_of(send(body=bytes(inner)))
    at = data.index(inner)
    assert records.walk(data, at, len(data), BASE + at, True)[2].startswith("bad: ")


@pytest.mark.parametrize(
    ("at", "layout", "value", "words"),
    [
        (0, ">i", 90, "claims 90 bytes"),
        (0, ">i", -1, "claims -1 bytes"),
        (0, ">i", 2**31 - 1, "claims 2147483647 bytes"),
        (0, ">i", 120, "properties"),
        (4, ">i", 5, "magic 0x00000005"),
        (4, ">i", 0, "magic 0x00000000"),
        (4, ">i", records.MAGIC_V2, "topic"),
        (12, ">i", -1, "queue -1"),
        (20, ">q", -1, "queue offset -1"),
        (28, ">q", 0, "stands at 0"),
        (84, ">i", -1, "body of -1"),
        (84, ">i", 2**31 - 1, "body of 2147483647"),
        (84, ">i", 5, "topic of "),
        (94, ">b", 0, "topic of 0"),
        (94, ">b", -1, "topic of 255"),
        (94, ">b", 127, "topic of 127"),
        (101, ">h", -1, "properties of -1"),
        (101, ">h", 23, "properties of 23, "),
        (95, ">B", 0xFF, "not UTF-8"),
        (88, ">B", 0, "checksum"),
    ],
)
def test_a_damaged_field_makes_the_record_bad_and_names_it(at: int, layout: str, value: int, words: str) -> None:
    data = run_of(send())
    struct.pack_into(layout, data, at, value)
    reason = reason_of(data)
    assert reason.startswith("bad: record at 5000 ")
    assert words in reason
    if "stands at" not in words:
        with pytest.raises(CorruptRecordError, match="record at byte 0"):
            records.view(data, 0, len(data), check_crc=True)


def test_the_checksum_is_only_checked_when_asked() -> None:
    data = run_of(send())
    data[88] ^= 1
    assert records.walk(data, 0, len(data), BASE, False)[2] == "end"
    assert records.view(data, 0, len(data)).body[0] == ord("b") ^ 1


def test_ipv6_bits_without_room_for_the_addresses_are_bad() -> None:
    data = run_of(send(topic="t", body=b"", properties=b""))
    struct.pack_into(">i", data, 36, 0x30)
    assert "IPv6" in reason_of(data)


@pytest.mark.parametrize(
    ("host", "shown"),
    [(V4, "10.0.0.1"), (V6, "1:203:405:607:809:a0b:c0d:e0f"), (bytes(16) + V4[4:], "0:0:0:0:0:0:0:0")],
)
def test_an_offset_id_gives_back_host_and_offset(host: bytes, shown: str) -> None:
    text = records.offset_message_id(host, 2**40 + 1)
    assert len(text) == 2 * (len(host) + 8)
    assert text == text.upper()
    assert records.parse_offset_message_id(text) == (shown, 10911, 2**40 + 1)
    assert records.parse_offset_message_id(text.lower()) == (shown, 10911, 2**40 + 1)


@pytest.mark.parametrize("text", ["", "0" * 31, "0" * 33, "G" * 32, " " * 32, "0" * 30 + " 0", "\u0660" * 32])
def test_a_text_that_is_no_offset_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"id|hex"):
        records.parse_offset_message_id(text)


def batch_entry(flag: int, body: bytes, properties: bytes) -> bytes:
    size = 22 + len(body) + len(properties)
    return struct.pack(">iiiii", size, 0, 0, flag, len(body)) + body + struct.pack(">h", len(properties)) + properties


def test_a_batch_splits_into_its_messages() -> None:
    body = batch_entry(1, b"one", b"a\x01b\x02") + batch_entry(-1, b"", b"") + batch_entry(0, b"\0" * 99, b"")
    assert records.split_batch(body) == [(1, b"one", b"a\x01b\x02"), (-1, b"", b""), (0, b"\0" * 99, b"")]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        batch_entry(0, b"x", b"")[:-1],
        batch_entry(0, b"x", b"") + b"\0",
        struct.pack(">iiiiih", 23, 0, 0, 0, 0, 0),
        struct.pack(">iiiiih", 21, 0, 0, 0, 0, 0),
        struct.pack(">iiiiih", -22, 0, 0, 0, 0, 0),
        struct.pack(">iiiiih", 22, 0, 0, 0, -1, 0),
        struct.pack(">iiiiih", 22, 0, 0, 0, 1, 0),
        struct.pack(">iiiiih", 22, 0, 0, 0, 2**31 - 1, 0),
        struct.pack(">iiiiih", 22, 0, 0, 0, 0, -1),
        struct.pack(">iiiiih", 22, 0, 0, 0, 0, 1),
    ],
)
def test_what_is_no_batch_is_refused(body: bytes) -> None:
    with pytest.raises(records.MalformedBatchError, match="batch"):
        records.split_batch(body)


def test_entries_and_records_show_where_they_stand() -> None:
    data = run_of(send(4))
    (entry,), _, _ = records.walk(data, 0, len(data), BASE, True)
    assert repr(entry) == f"Entry('orders'/3 at 4, log 5000+{len(data)})"
    assert repr(records.view(data, 0, len(data))) == f"Record('orders'/3 at 4, log 5000+{len(data)})"


def test_properties_are_found_in_records_without_their_bodies() -> None:
    log = run_of(send(1), send(2, topic="x" * 200, born_host=V6, body=b""), send(3, properties=b""))
    entries, _, _ = records.walk(log, 0, len(log), BASE, False)
    places = [(entry.log_offset, entry.size) for entry in entries]
    assert records.named(log, BASE, places, (b"TAGS", b"KEYS")) == [[b"paid", b"k1"], [b"paid", b"k2"], [None, None]]


@pytest.mark.parametrize("place", [(BASE + 1, 100), (BASE - 1, 100), (BASE, 50), (BASE, 99_999), (0, 0), (-5, -5)])
def test_where_no_record_stands_no_property_is_found(place: tuple[int, int]) -> None:
    log = run_of(send(1))
    assert records.named(log, BASE, [place, (BASE, len(log))], (b"TAGS",)) == [None, [b"paid"]]
