"""The compiled tables of open halves do what the pure ones do, on what brokers have and on what nobody should write."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gantry.leaves import requests
from testkit.compiled import fast, hostile, near, same_outcome
from testkit.compiled import pure as pure_leaf

LEAVES = ("openhalves", "records", "frames", "properties", "halves")
compiled = SimpleNamespace(**{name: fast(name) for name in LEAVES})
pure = SimpleNamespace(**{name: pure_leaf(name) for name in LEAVES})

HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
QUEUES = {"orders": 4, "Ω": 6, "bills": 0, "": 3}
BOUNDS_S = (0.01, 0.1, 1.0, 60.0)
FACTS = [slot for slot in pure.openhalves.OpenHalf.__slots__ if slot != "batch"]

groups = st.sampled_from(["payers", "shops", "Ω", ""])
topics = st.sampled_from(["orders", "Ω", "bills", ""])
numbers = st.one_of(st.integers(0, 12), st.sampled_from([-1, 2**62, 2**63 - 1, -(2**63)]))
more = st.sampled_from(
    [b"", b"SPARK_TXN\x01s/1/p/b\x02", b"TRAN_PREPARED_QUEUE_OFFSET\x011\x02", b"TRANSACTION_CHECK_TIMES\x013\x02",
     b"GANTRY_TX_SINCE_MS\x0177\x02", b"CHECK_IMMUNITY_TIME_IN_SECONDS\x019\x02", b"REAL_QID\x01x\x02", b"\xff\x01\xff"]
)  # fmt: skip


@st.composite
def half_texts(draw: st.DrawFn) -> bytes:
    """The properties of a record of the half queue."""
    said = draw(topics).encode(), draw(st.integers(0, 5)), draw(groups).encode()
    text = b"UNIQ_KEY\x01k\x02TRAN_MSG\x01true\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02PGROUP\x01%b\x02" % said
    return text + draw(more)


@st.composite
def states(draw: st.DrawFn) -> bytes:
    """The properties of an op."""
    root, letter = draw(st.integers(0, 12)), draw(st.sampled_from("crgcrx"))
    plain = b"%d%b" % (root, letter.encode())
    odd = [b"mark", b"c", b"", b"9" * 18 + b"c", b"9" * 19 + b"c", plain + b":7", b"1c 2r", b"+1c", b"00%b" % plain]
    state = draw(st.one_of(st.just(plain), st.just(plain), st.sampled_from(odd)))
    text = b"TAGS\x01d\x02KEYS\x01%d\x02GANTRY_TX\x01%b\x02" % (root, state)
    return text + draw(st.sampled_from([b"", b"", b"GANTRY_TX\x011r", b"GANTRY_TX\x01\x02", b"\x02\x01"]))


def entry(leaves: SimpleNamespace, text: bytes, queue_offset: int, born_ms: int) -> Any:
    return leaves.records.Entry(
        4711 + queue_offset, 300, "HALF", 0, queue_offset, 0, 5000, 0, 0, b"", b"", text, born_ms
    )


def half(leaves: SimpleNamespace, text: bytes, offset: int, store_ms: int = 5000, size: int = 300) -> Any:
    facts = leaves.halves.HalfFacts(text, offset)
    return leaves.openhalves.OpenHalf(offset, (4711 + 300 * offset, size), facts, store_ms)


def shown(one: Any) -> list[object]:
    return [getattr(one, name) for name in FACTS]


def table(found: dict[int, Any]) -> list[object]:
    return [(offset, shown(one)) for offset, one in found.items()]


gaps = st.sampled_from([False, False, False, True])


@hostile
@given(st.lists(st.tuples(half_texts(), numbers, gaps), max_size=6), st.integers(0, 3), st.integers(0, 2))
def test_what_becomes_open(drawn: list[tuple[bytes, int, bool]], half_end: int, at: int) -> None:
    def entered(leaves: SimpleNamespace) -> object:
        is_open: dict[int, Any] = {}
        counted: dict[str, int] = {"orders": 2}
        offset, entries = half_end - at, []
        for text, born_ms, is_gap in drawn:
            entries.append(entry(leaves, text, max(0, offset), born_ms))
            offset += 2 if is_gap else 1
        found, pairs = leaves.openhalves.enter(entries, at, is_open, counted, half_end)
        assert all(is_open[one.current] is one for one in found)
        return [shown(one) for one in found], pairs, table(is_open), counted

    same_outcome(lambda: entered(pure), lambda: entered(compiled))


@st.composite
def ends_of(draw: st.DrawFn) -> dict[str, Any]:
    """The fields of an end, mostly right for the half at its queue offset."""
    offset = draw(st.integers(0, 6))
    return {
        "opaque": draw(st.sampled_from([0, 7, -1, 2**31 - 1, -(2**31)])),
        "rpc_flag": draw(st.sampled_from([0, 0, 2])),
        "queue_offset": offset,
        "log_offset": draw(st.sampled_from([4711 + 300 * offset] * 4 + [-1, 4711])),
        "group": draw(st.sampled_from(["payers", "payers", "payers", "shops"])),
        "kind": draw(st.sampled_from([8, 8, 12, 12, 0])),
        "from_check": draw(st.booleans()),
    }


def opened(leaves: SimpleNamespace, count: int = 5) -> dict[int, Any]:
    text = b"REAL_TOPIC\x01orders\x02PGROUP\x01payers\x02"
    return {offset: half(leaves, text, offset) for offset in range(count)}


@hostile
@given(st.lists(ends_of(), max_size=5), st.sampled_from([0, 0, 5000, -1]))
def test_which_halves_are_named(drawn: list[dict[str, Any]], warm_from: int) -> None:
    def named(leaves: SimpleNamespace) -> object:
        ends = [leaves.frames.End(**fields) for fields in drawn]
        found = leaves.openhalves.match(ends, opened(leaves), warm_from)
        return None if found is None else ([shown(one) for one in found[0]], *found[1:])

    same_outcome(lambda: named(pure), lambda: named(compiled))


@hostile
@given(st.lists(ends_of(), max_size=5))
def test_replies_to_ends(drawn: list[dict[str, Any]]) -> None:
    def replied(leaves: SimpleNamespace) -> object:
        return leaves.frames.encode_end_replies([leaves.frames.End(**fields) for fields in drawn])

    same_outcome(lambda: replied(pure), lambda: replied(compiled))


@hostile
@given(
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from([8, 12])), max_size=6),
    st.lists(st.tuples(half_texts(), st.binary(max_size=9)), min_size=7, max_size=7),
    st.sets(st.integers(0, 6), max_size=1),
    st.data(),
)
def test_the_run_that_ends_them(
    named: list[tuple[int, int]], drawn: list[tuple[bytes, bytes]], changing: set[int], data: st.DataObject
) -> None:
    log = bytearray()
    places = []
    for offset, (text, body) in enumerate(drawn):
        traits, unique_key, keys, tags_code = pure.properties.scan(text)
        scanned = {"traits": traits, "unique_key": unique_key, "keys": keys, "tags_code": tags_code}
        send = pure.frames.Send(topic="HALF", properties=text, body=body, born_host=HOST, born_ms=offset, **scanned)
        send.queue_offset = offset
        size = pure.records.size_of(send)
        log += bytes(size)
        places.append((4711 + len(log) - size, size))
        pure.records.encode_run(log, len(log) - size, places[-1][0], [send], 9, HOST)
    for _ in range(data.draw(st.integers(0, 2))):
        log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    stop = 4711 + len(log) - data.draw(st.sampled_from([0, 0, 0, 1, 200]))
    start = data.draw(st.sampled_from([4711, 4711, 4711, 4700, 4800]))
    gone, moved = data.draw(st.integers(-1, 9)), data.draw(st.integers(-1, 9))

    def laid(leaves: SimpleNamespace) -> object:
        is_open = {offset: half(leaves, text, offset) for offset, (text, _) in enumerate(drawn)}
        for offset, one in is_open.items():
            one.log_offset, one.size = places[offset]
        ends = [leaves.frames.End(kind=kind) for _, kind in named]
        halves = [is_open[offset] for offset, _ in named]
        is_open.pop(gone, None)
        if moved in is_open:
            is_open[moved].root = 0
        known = is_open, dict.fromkeys(changing)
        stretch = memoryview(log), start, stop
        found = leaves.openhalves.lay_out(ends, halves, known, stretch, QUEUES.__getitem__, ("OPS", 77, HOST))
        if found is None:
            return None
        run, ops = found
        assert [one for one in run if one.topic == "OPS"] == ops
        return [{name: getattr(send, name) for name in requests.Send.__slots__} for send in run]

    same_outcome(lambda: laid(pure), lambda: laid(compiled))


@given(st.integers(-300, 300), st.integers(-2, 2))
def test_a_record_of_another_place_or_size_is_not_the_half_s(by: int, longer: int) -> None:
    def laid(leaves: SimpleNamespace) -> int | None:
        text = b"REAL_TOPIC\x01orders\x02REAL_QID\x010\x02"
        send = leaves.frames.Send(topic="HALF", properties=text, body=b"paid", born_host=HOST)
        send.queue_offset = 1
        log = bytearray(leaves.records.size_of(send) + 2)
        end = leaves.records.encode_run(log, 0, 4711 + by, [send], 9, HOST)
        one = half(leaves, text, 1)
        one.log_offset, one.size = 4711, end + longer
        ends, stretch = [leaves.frames.End(kind=8)], (memoryview(log), 4711, 4711 + len(log))
        found = leaves.openhalves.lay_out(ends, [one], ({1: one}, {}), stretch, lambda _: 1, ("OPS", 77, HOST))
        return None if found is None else len(found[0])

    assert laid(pure) == laid(compiled) == (2 if by == longer == 0 else None)


@given(st.lists(st.tuples(st.sampled_from([8, 12]), topics, numbers), max_size=8), numbers)
def test_how_ends_are_counted(drawn: list[tuple[int, str, int]], now_ms: int) -> None:
    def counted(leaves: SimpleNamespace) -> object:
        ends = [leaves.frames.End(kind=kind) for kind, _, _ in drawn]
        halves = [half(leaves, b"REAL_TOPIC\x01%b\x02" % topic.encode(), 1, store_ms) for _, topic, store_ms in drawn]
        return leaves.openhalves.tally(ends, halves, now_ms, BOUNDS_S)

    same_outcome(lambda: counted(pure), lambda: counted(compiled))


@hostile
@given(
    st.lists(st.tuples(states(), gaps), max_size=6),
    st.integers(0, 2),
    st.sets(st.integers(0, 12), max_size=3),
    st.sampled_from([0, 0, 0, 2, 6]),
    st.one_of(st.just(bytes(4)), st.binary(min_size=1, max_size=4)),
    st.integers(-1, 40),
)
def test_what_ops_end(
    drawn: list[tuple[bytes, bool]], at: int, ended: set[int], base: int, before: bytes, unusual: int
) -> None:
    def closed(leaves: SimpleNamespace) -> object:
        offset, entries = 3 - at, []
        for text, is_gap in drawn:
            entries.append(entry(leaves, text, offset, 0))
            offset += 2 if is_gap else 1
        roots = [root for root in range(13) if root not in ended]
        is_open = {root: half(leaves, b"REAL_TOPIC\x01%d\x02" % (root % 3), root) for root in roots}
        if unusual in is_open:
            is_open[unusual].batch = "batch"
        if unusual + 1 in is_open:
            is_open[unusual + 1].root = 0
        counted: dict[str, int] = {}
        for one in is_open.values():
            counted[one.topic] = counted.get(one.topic, 0) + 1
        bits = bytearray(before)
        roots = leaves.openhalves.close(entries, at, is_open, counted, (bits, base), 3)
        return roots, table(is_open), counted, bytes(bits)

    same_outcome(lambda: closed(pure), lambda: closed(compiled))


@hostile
@given(half_texts(), states())
def test_what_one_record_opens_and_one_op_ends(text: bytes, state: bytes) -> None:
    def entered(leaves: SimpleNamespace, text: bytes) -> object:
        is_open: dict[int, Any] = {}
        found = leaves.openhalves.enter([entry(leaves, text, 5, 1)], 0, is_open, {}, 5)
        return len(found[0]), table(is_open)

    def closed(leaves: SimpleNamespace, state: bytes) -> object:
        is_open, bits = opened(leaves, 13), bytearray(4)
        return leaves.openhalves.close([entry(leaves, state, 3, 0)], 0, is_open, {"orders": 13}, (bits, 0), 3), bits

    for one in near(text):
        same_outcome(lambda one=one: entered(pure, one), lambda one=one: entered(compiled, one))
    for one in near(state):
        same_outcome(lambda one=one: closed(pure, one), lambda one=one: closed(compiled, one))


small = st.integers(0, 9)


@hostile
@given(st.sets(small), st.lists(st.integers(-1, 9)), small, small, st.integers(0, 5))
def test_how_far_all_is_done(opens: set[int], named: list[int], at: int, end: int, count: int) -> None:
    is_open: dict[int, None] = dict.fromkeys(opens)
    ops = array("q", named)
    for function, taken in (("following", (is_open, at, end)), ("done", (ops, count, at))):
        assert getattr(pure.openhalves, function)(*taken) == getattr(compiled.openhalves, function)(*taken)
