"""The compiled records, queue entries and properties do what the pure ones do, on good bytes and on damaged ones."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.leaves import stored, zerosectors
from gantry.wire.record import join_batch
from testkit.compiled import fast, hostile, near, same_outcome
from testkit.compiled import pure as pure_leaf

compiled, pure = fast("records"), pure_leaf("records")
compiled_properties, pure_properties = fast("properties"), pure_leaf("properties")
compiled_queues, pure_queues = fast("queues"), pure_leaf("queues")
compiled_requests, pure_requests = fast("requests"), pure_leaf("requests")

V4, V6 = b"\x7f\0\0\1\0\0\x2a\x9f", bytes(range(20))
NAMES = [
    "UNIQ_KEY", "TAGS", "KEYS", "WAIT", "TRAN_MSG", "MSG_TYPE", "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS",
    "TIMER_DELIVER_MS", "__STARTDELIVERTIME", "TIMER_DEL_UNIQKEY", "POP_CK", "INNER_MULTI_DISPATCH",
    "CHECK_IMMUNITY_TIME_IN_SECONDS", "INNER_NUM", "x", "",
]  # fmt: skip
VALUES = ["true", "TRUE", "tRue", "false", "0", "000", "-1", "3", "a b", "reply", "支付", "\x01", ""]

pairs = st.lists(st.tuples(st.sampled_from(NAMES), st.one_of(st.sampled_from(VALUES), st.text(max_size=6))), max_size=6)
properties = st.one_of(
    st.tuples(pairs, st.booleans()).map(
        lambda drawn: (
            "\x02".join(f"{name}\x01{value}" for name, value in drawn[0]).encode("utf-8", "replace")
            + (b"\x02" if drawn[1] else b"")
        )
    ),
    st.binary(max_size=60),
)
messages = st.lists(
    st.tuples(
        st.sampled_from(["T", "Orders", "x" * 127, "x" * 128, "主题", "y" * 300]),
        st.integers(0, 2**31 - 1),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(0, 2**62),
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from([V4, V6]),
        st.binary(max_size=300),
        properties,
    ),
    max_size=5,
)


def run(records: ModuleType, requests: ModuleType, values: list[tuple[object, ...]], store_host: bytes) -> bytearray:
    sends = []
    for topic, queue_id, numbers, queue_offset, born_ms, born_host, body, props in values:
        send = requests.Send(
            topic=topic, queue_id=queue_id, flag=numbers, sys_flag=numbers, born_ms=born_ms, born_host=born_host,
            body=body, properties=props, reconsume_times=numbers, prepared_offset=born_ms,
        )  # fmt: skip
        send.queue_offset = queue_offset
        sends.append(send)
    out = bytearray(sum(records.size_of(send, len(store_host)) for send in sends))
    end = records.encode_run(out, 0, 1 << 40, sends, 1_700_000_000_000, store_host)
    assert end == len(out)
    assert [send.log_offset + send.size for send in sends][-1:] in ([], [(1 << 40) + end])
    return out


def walked(records: ModuleType, data: bytes, *arguments: object) -> object:
    entries, at, reason = records.walk(data, *arguments)
    return [[getattr(entry, name) for name in stored.Entry.__slots__] for entry in entries], at, reason


@hostile
@given(messages, st.sampled_from([V4, V6]), st.data())
def test_runs_and_walks_over_them(values: list[tuple[object, ...]], store_host: bytes, data: st.DataObject) -> None:
    log = run(pure, pure_requests, values, store_host)
    assert log == run(compiled, compiled_requests, values, store_host)
    log += data.draw(st.sampled_from([b"", bytes(8), bytes(100), b"\0\0\0\x64\xcb\xd4\x31\x94" + bytes(92)]))
    for _ in range(data.draw(st.integers(0, 2))):
        if log:
            log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(log)))
    for one in near(log):
        for crc in (True, False):
            for stop, count in ((len(one), 2**31), (min(end, len(one)), 2**31), (len(one), 2)):
                arguments = (one, 0, stop, 1 << 40, crc, count)
                same_outcome(lambda a=arguments: walked(pure, *a), lambda a=arguments: walked(compiled, *a))


@hostile
@given(messages, st.sampled_from([V4, V6]), st.data())
def test_whole_records(values: list[tuple[object, ...]], store_host: bytes, data: st.DataObject) -> None:
    log = run(pure, pure_requests, values, store_host)
    log += data.draw(st.sampled_from([b"", bytes(8), b"\0\0\0\x64\xcb\xd4\x31\x94" + bytes(92)]))
    for _ in range(data.draw(st.integers(0, 2))):
        if log:
            log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    end, bytes_max = data.draw(st.integers(0, len(log))), data.draw(st.integers(0, 1000))
    for one in near(log):
        arguments = (one, 0, min(end, len(one)), bytes_max)
        same_outcome(lambda a=arguments: pure.whole(*a), lambda a=arguments: compiled.whole(*a))


def viewed(records: ModuleType, data: bytes, at: int, end: int, check_crc: bool) -> object:
    record = records.view(data, at, end, check_crc)
    return [getattr(record, name) for name in stored.Record.__slots__]


@hostile
@given(messages, st.sampled_from([V4, V6]), st.data())
def test_views_of_records(values: list[tuple[object, ...]], store_host: bytes, data: st.DataObject) -> None:
    log = run(pure, pure_requests, values, store_host)
    starts = [log_at for log_at, _ in pure_places(log)]
    for _ in range(data.draw(st.integers(0, 2))):
        if log:
            log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    at = data.draw(st.sampled_from([*starts, 0, 1]))
    end = data.draw(st.one_of(st.just(len(log)), st.integers(0, len(log) + 5)))
    for one in near(log):
        for crc in (True, False):
            same_outcome(
                lambda a=(one, at, end, crc): viewed(pure, *a), lambda a=(one, at, end, crc): viewed(compiled, *a)
            )


def pure_places(log: bytearray) -> list[tuple[int, int]]:
    """Where each record of a run begins, and how long it is."""
    entries, _, _ = pure.walk(log, 0, len(log), 1 << 40, False)
    return [(entry.log_offset - (1 << 40), entry.size) for entry in entries]


@hostile
@given(st.binary(max_size=300))
def test_walks_over_random_bytes(data: bytes) -> None:
    for one in near(data):
        arguments = (one, 0, len(one), 0, True)
        same_outcome(lambda a=arguments: walked(pure, *a), lambda a=arguments: walked(compiled, *a))


@hostile
@given(messages, st.sampled_from([V4, V6]), st.data())
def test_properties_of_records(values: list[tuple[object, ...]], store_host: bytes, data: st.DataObject) -> None:
    log = run(pure, pure_requests, values, store_host)
    entries = pure.walk(log, 0, len(log), 1 << 40, False)[0]
    places = [(entry.log_offset, entry.size) for entry in entries]
    shift = data.draw(st.integers(-3, 3))
    places += [(offset + shift, size + data.draw(st.integers(-2, 2))) for offset, size in places]
    places += data.draw(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(-(2**31), 2**40)), max_size=3))
    for _ in range(data.draw(st.integers(0, 2))):
        if log:
            log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    names = tuple(name.encode() for name in data.draw(st.permutations(NAMES)))[: data.draw(st.integers(0, 5))]
    assert compiled.named(log, 1 << 40, places, names) == pure.named(log, 1 << 40, places, names)


@hostile
@given(properties)
def test_scans(props: bytes) -> None:
    for one in near(props):
        assert compiled_properties.scan(one) == pure_properties.scan(one)


PICKED = st.sampled_from([b"UNIQ_KEY", b"TAGS", b"KEYS", b"PGROUP", b"WAIT", b"a", b"nowhere", b""])


@given(st.one_of(properties, st.binary(max_size=60)), st.lists(PICKED, max_size=6, unique=True))
def test_the_twins_pick_the_same_values(props: bytes, names: list[bytes]) -> None:
    for one in near(props):
        assert compiled_properties.pick(one, tuple(names)) == pure_properties.pick(one, tuple(names))


@hostile
@given(
    st.lists(
        st.tuples(st.integers(-5, 2**40), st.integers(-2, 2**31 - 1), st.integers(-(2**63), 2**63 - 1)), max_size=30
    ),
    st.integers(0, 30), st.integers(0, 40), st.integers(0, 35), st.integers(0, 2**33),
    st.one_of(st.none(), st.frozensets(st.integers(-(2**31), 2**31 - 1), max_size=4)), st.data(),
)  # fmt: skip
def test_queue_entries(
    entries: list[tuple[int, int, int]], first: int, count: int, count_max: int, bytes_max: int,
    codes: frozenset[int] | None, data: st.DataObject,
) -> None:  # fmt: skip
    packed = pure_queues.pack_entries(entries)
    assert packed == compiled_queues.pack_entries(entries)
    if codes is not None and entries:
        code = data.draw(st.sampled_from(entries))[2]
        codes |= {(code + 2**31) % 2**32 - 2**31}
    start = min(first, len(entries)) * 20
    assert pure_queues.select(packed, start, count, codes, count_max, bytes_max) == compiled_queues.select(
        packed, start, count, codes, count_max, bytes_max
    )
    counts = [leaf.valid_count(packed, start, len(packed)) for leaf in (pure_queues, compiled_queues)]
    assert counts[0] == counts[1]


def sealed(leaf: Callable[[str], ModuleType], values: list[tuple[object, ...]]) -> tuple[list[object], list[bytes]]:
    """The messages with the broker's last touches, as two peers sent them, and those that needed more than that."""
    runs, requests, scan = leaf("runs"), leaf("requests"), leaf("properties").scan
    odd: list[bytes] = []

    def in_order(send: object) -> bytes:
        odd.append(send.properties)  # type: ignore[attr-defined]
        return b"UNIQ_KEY\x01u\x02"

    sends = []
    for topic, queue_id, numbers, queue_offset, born_ms, _, body, props in values:
        send = requests.Send(
            topic=topic, queue_id=queue_id, sys_flag=numbers, born_ms=born_ms, body=body, properties=props
        )
        send.traits, send.unique_key, send.keys, send.tags_code = scan(props)
        send.queue_offset = queue_offset
        sends.append(send)
    peers = [SimpleNamespace(born_host=V4), SimpleNamespace(born_host=V6)]
    gathered = [(peers[0], sends[:2]), (peers[1], sends[2:])]
    return runs.seal(gathered, b"MSG_REGION\x01r\x02", b"MSG_REGION\x01", in_order), odd


@hostile
@given(messages)
def test_last_touches(values: list[tuple[object, ...]]) -> None:
    (ours, odd), (theirs, other_odd) = sealed(pure_leaf, values), sealed(fast, values)
    fields = ("properties", "born_host", "traits", "sys_flag")
    assert [[getattr(send, name) for name in fields] for send in ours] == [
        [getattr(send, name) for name in fields] for send in theirs
    ]
    assert odd == other_odd


batches = st.lists(
    st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=40), st.binary(max_size=40)),
    min_size=1,
    max_size=5,
).map(join_batch)
mangled = st.tuples(batches, st.integers(0, 200), st.integers(0, 255)).map(
    lambda drawn: drawn[0][: drawn[1]] + bytes([drawn[2]]) + drawn[0][drawn[1] + 1 :]
)


@hostile
@given(batches | mangled | st.binary(max_size=60), st.sampled_from([b"", b"a\x01b", b"a\x01b\x02"]), st.integers(0, 6))
def test_messages_of_a_batch(body: bytes, shared: bytes, count_max: int) -> None:
    found: list[object] = []
    for leaf in (pure_leaf, fast):
        send = leaf("requests").Send
        request = send(topic="T", queue_id=3, sys_flag=1, born_ms=7, reconsume_times=2, properties=shared, body=body)
        try:
            count, sends = leaf("runs").unpack(request, count_max)
        except pure.MalformedBatchError as error:
            found.append(str(error))
        else:
            names = [name for name in dir(pure_requests.Send()) if not name.startswith("_")]
            found.append((count, [[getattr(one, name) for name in names] for one in sends]))
    assert found[: len(found) // 2] == found[len(found) // 2 :]


counts = st.dictionaries(st.sampled_from(["T", "主题", "Orders"]), st.integers(0, 8))
kinds = st.dictionaries(st.sampled_from(["T", "主题", "Orders"]), st.tuples(st.integers(0, 8), st.integers(0, 4)))


@hostile
@given(messages, counts, kinds, st.lists(st.sampled_from([0, 1, 2, 512, 2048, 4096, 4097]), min_size=5, max_size=5))
def test_messages_sorted(
    values: list[tuple[object, ...]], queues: dict[str, int], typed: dict[str, tuple[int, int]], traits: list[int]
) -> None:
    found: list[object] = []
    for leaf in (pure_leaf, fast):
        sends, _ = sealed(leaf, [("T" if len(str(one[0])) > 9 else one[0], *one[1:]) for one in values])
        for number, send in enumerate(sends):
            send.traits, send.queue_id = traits[number], send.queue_id % 5  # type: ignore[attr-defined]
        parts = leaf("runs").sort(sends, queues, typed, 250, 100, 40)
        found.append(parts and [[sends.index(send) for send in part] for part in parts])
    assert found[0] == found[1]


@hostile
@given(messages, counts, st.integers(0, 2047))
def test_plain_messages(values: list[tuple[object, ...]], queues: dict[str, int], traits: int) -> None:
    counts = []
    for leaf in (pure_leaf, fast):
        sends, _ = sealed(leaf, values)
        counts.append(leaf("runs").plain(sends, queues, 200, 60, 20, traits, 0xC))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(("zeros", "count"), [(511, 1), (512, 0)])
def test_a_message_with_a_sector_of_zeros_in_its_properties_is_not_plain(zeros: int, count: int) -> None:
    for leaf in (pure_leaf, fast):
        send = leaf("requests").Send(topic="T", queue_id=0, properties=b"p\x01" + bytes(zeros) + b"\x02")
        assert leaf("runs").plain([send], {"T": 1}, 9, 9999, 9, 0, 0) == count


@hostile
@given(messages, st.sampled_from([V4, V6]))
def test_entries_of_a_run_are_what_a_walk_over_it_finds(values: list[tuple[object, ...]], store_host: bytes) -> None:
    for leaf in (pure_leaf, fast):
        sends, odd = sealed(leaf, values)
        if odd or len({len(send.properties) < 32768 for send in sends}) > 1:
            continue  # the broker scans such messages again, or refuses them
        out = bytearray(leaf("records").run_bytes(sends, len(store_host)))
        leaf("records").encode_run(out, 0, 1 << 40, sends, 1_700_000_000_000, store_host)
        found = leaf("runs").entries(sends, 1_700_000_000_000, len(store_host))
        names = stored.Entry.__slots__
        entries = [[getattr(entry, name) for name in names] for entry in found]
        again, at, reason = walked(leaf("records"), bytes(out), 0, len(out), 1 << 40, True)
        assert (entries, at) == (again, len(out)), reason


@hostile
@given(
    st.lists(st.tuples(st.integers(-3, 40), st.integers(-2, 20)), max_size=8),
    st.booleans(), st.integers(0, 30), st.integers(0, 60), st.integers(-2, 5), st.binary(max_size=60),
    st.integers(1, 50),
)  # fmt: skip
def test_places(
    drawn: list[tuple[int, int]], neighbours: bool, start: int, end: int, base: int, memory: bytes, segment: int
) -> None:  # fmt: skip
    if neighbours:  # so that some are
        for number in range(1, len(drawn)):
            drawn[number] = (sum(drawn[number - 1]), drawn[number][1])
    pure, compiled = pure_queues.Places(drawn), compiled_queues.Places(drawn)
    assert list(compiled) == pure and len(compiled) == len(pure)
    assert (compiled.total, compiled.within(start, end, segment)) == (pure.total, pure.within(start, end, segment))
    assert list(compiled.stretches()) == pure.stretches()
    assert compiled[1:3] == pure[1:3]
    same_outcome(lambda: pure.gather(memory, base), lambda: compiled.gather(memory, base))
    same_outcome(lambda: pure[start], lambda: compiled[start])


@pytest.mark.parametrize(
    "text",
    [b"", b"\0", b"a\x01\0", b"a\x01\0\x02", bytes(511) + b"\x02", bytes(512), b"a\x01" + bytes(512) + b"\x02"],
)
@pytest.mark.parametrize("is_guarded", [False, True])
def test_properties_that_a_start_would_take_for_torn_are_refused(text: bytes, is_guarded: bool) -> None:
    made = zerosectors.guarded(text, 32767) if is_guarded else text
    is_refused = zerosectors.is_doubtful(made)
    assert is_refused == ((not is_guarded and text[-1:] == b"\0") or (not is_guarded and bytes(512) in text))
    for records, requests in ((pure, pure_requests), (compiled, compiled_requests)):
        send = requests.Send(topic="T", properties=made, born_host=V4)
        if not is_refused:
            assert records.run_bytes([send]) == records.size_of(send)
            continue
        with pytest.raises(ValueError, match="sector of zeros and without their checksum"):
            records.run_bytes([send])
