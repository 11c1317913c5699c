"""Whatever stands in a stretch of log, a walk takes only whole records, in its range, and tells why it stopped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gantry.errors import CorruptRecordError
from gantry.leaves import frames, properties, records
from gantry.wire.record import join_batch
from testkit.feeding import ENTRY_FIELDS

TOPICS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=3) | st.sampled_from(["t" * 127, "t" * 128])
HOSTS = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
NATURAL = st.integers(0, 2**31 - 1)
REASONS = ("end", "blank", "zero", "more", "bad: ")


@st.composite
def sends(draw: st.DrawFn) -> frames.Send:
    send = frames.Send(
        topic=draw(TOPICS),
        queue_id=draw(NATURAL),
        sys_flag=draw(I32),
        born_ms=draw(I64),
        flag=draw(I32),
        properties=draw(st.binary(max_size=30)),
        reconsume_times=draw(I32),
        body=draw(st.binary(max_size=30)),
        born_host=draw(HOSTS),
        prepared_offset=draw(I64),
    )
    send.queue_offset = draw(NATURAL)
    return send


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, int, list[frames.Send]]:
    """A run of records, the log offset where it begins, and what is in it."""
    messages = draw(st.lists(sends(), min_size=1, max_size=3))
    store_host = draw(HOSTS)
    base = draw(st.integers(0, 2**60))
    out = bytearray(sum(records.size_of(each, len(store_host)) for each in messages))
    end = records.encode_run(out, 0, base, messages, draw(I64), store_host)
    assert end == len(out)
    return bytes(out), base, messages


def walked(data: bytes, start: int, end: int, base: int) -> tuple[list[tuple[object, ...]], int, str]:
    entries, stop, reason = records.walk(data, start, end, base, True)
    assert start <= stop <= max(start, end)
    assert reason.startswith(REASONS)
    return [tuple(getattr(entry, name) for name in ENTRY_FIELDS) for entry in entries], stop - start, reason


@given(logs())
def test_what_is_written_is_walked(log: tuple[bytes, int, list[frames.Send]]) -> None:
    data, base, messages = log
    entries, stop, reason = walked(data, 0, len(data), base)
    assert (stop, reason) == (len(data), "end")
    for entry, send in zip(entries, messages, strict=True):
        assert entry[:5] == (send.log_offset, send.size, send.topic, send.queue_id, send.queue_offset)
        assert entry[9:] == (*properties.scan(send.properties)[1:3], send.properties)
        record = records.view(data, send.log_offset - base, len(data), check_crc=True)
        assert (record.body, record.born_host, record.flag) == (send.body, send.born_host, send.flag)
        assert (record.born_ms, record.prepared_offset) == (send.born_ms, send.prepared_offset)


@given(logs(), st.binary(max_size=40), st.data())
def test_nothing_outside_the_range_matters(
    log: tuple[bytes, int, list[frames.Send]], tail: bytes, data: st.DataObject
) -> None:
    inside, base, _ = log
    end = data.draw(st.integers(0, len(inside)))
    expected = walked(inside[:end], 0, end, base)
    assert walked(tail + inside + tail, len(tail), len(tail) + end, base) == expected


@given(logs(), st.data())
def test_damage_stops_the_walk_at_or_before_it(log: tuple[bytes, int, list[frames.Send]], data: st.DataObject) -> None:
    """Or goes unnoticed, where no checksum covers it: a record's numbers, hosts and properties."""
    inside, base, messages = log
    damaged = bytearray(inside)
    at = data.draw(st.integers(0, len(inside) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    entries, stop, _ = walked(bytes(damaged), 0, len(damaged), base)
    for entry, send in zip(entries, messages, strict=False):
        assert entry[:2] == (send.log_offset, send.size)
    assert stop == sum(send.size for send in messages[: len(entries)])


@given(st.binary(max_size=300), st.integers(0, 2**60))
def test_any_bytes_can_be_walked(data: bytes, base: int) -> None:
    entries, stop, _ = walked(data, 0, len(data), base)
    assert entries == [] or stop > 0
    try:
        records.view(data, 0, len(data))
    except CorruptRecordError:
        assert entries == []


@given(st.lists(st.tuples(I32, st.binary(max_size=30), st.binary(max_size=30)), max_size=4))
def test_a_batch_splits_as_it_was_joined(messages: list[tuple[int, bytes, bytes]]) -> None:
    body = join_batch(messages)
    if messages:
        assert records.split_batch(body) == messages


@given(st.binary(max_size=120))
def test_any_bytes_are_a_batch_or_are_refused(body: bytes) -> None:
    try:
        messages = records.split_batch(body)
    except records.MalformedBatchError:
        return
    assert sum(22 + len(inner) + len(pairs) for _, inner, pairs in messages) == len(body)
