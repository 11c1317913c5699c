"""The compiled delays do what the pure ones do, on what producers send and on what nobody should."""

from __future__ import annotations

from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from gantry.leaves import requests
from testkit.compiled import fast, hostile, near, same_outcome
from testkit.compiled import pure as pure_leaf

compiled, pure = fast("delays"), pure_leaf("delays")
OTHERS = {
    id(compiled): (fast("requests"), fast("records"), fast("properties")),
    id(pure): (pure_leaf("requests"), pure_leaf("records"), pure_leaf("properties")),
}
NOW_MS = 1_700_000_000_000
HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
NAMES = [*sorted(pure.BY_LEVEL), pure.CANCELS, b"UNIQ_KEY", b"TAGS", b"KEYS", b"X", b"", b"DELAYS", b"REAL"]
BITS = [pure.CANCEL_BIT, pure.LEASE_BIT, pure.RETIME_BIT, pure.LEASE_BIT | pure.RETIME_BIT]
EDGES = [b"%d" % (number - one) for number in (1 << 60, 1 << 61) for one in (0, 1)]
NUMBERS = [b"0", b"3", b"007", b"99", b"-1", b"+5", b"soon", *EDGES, b"9" * 15, b"1" + b"0" * 15, b"9" * 40, b"1" * 18]
values = st.one_of(
    st.sampled_from([b"", *NUMBERS, b"orders", "主题".encode(), b"%RETRY%g", b"HALF", b"a\x01b", b"\xff"]),
    st.integers(NOW_MS - 5, NOW_MS + 5000).map(lambda number: b"%d" % number),
    st.binary(max_size=12),
)
pairs = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=8)
texts = st.one_of(
    st.builds(
        lambda found, ends_open: b"".join(name + b"\x01" + value + b"\x02" for name, value in found)[
            : -1 if ends_open else None
        ],
        pairs,
        st.booleans(),
    ),
    st.binary(max_size=60),
)
topics = st.sampled_from(["orders", "主题", "t" * 200, "TIMES", "%RETRY%g"])


def made(module: ModuleType, text: bytes, **fields: object) -> object:
    kinds, _, properties = OTHERS[id(module)]
    traits, unique_key, keys, tags_code = properties.scan(text)
    scanned = {"traits": traits, "unique_key": unique_key, "keys": keys, "tags_code": tags_code}
    return kinds.Send(properties=text, **scanned, **fields)


def fields_of(send: object) -> object:
    return None if send is None else {name: getattr(send, name) for name in requests.Send.__slots__}


@hostile
@given(
    st.lists(st.tuples(texts, topics, st.integers(-2, 2**31 - 1)), max_size=4),
    st.sampled_from([-1, 0, 4000, 1 << 60]),
    st.integers(0, 3),
)
def test_hiding(values: list[tuple[bytes, str, int]], ahead_ms_max: int, timed_max: int) -> None:
    def hidden(module: ModuleType, text: bytes) -> list[object]:
        first = [(text, *values[0][1:])] if values else []
        sends = [made(module, one, topic=topic, queue_id=queue_id) for one, topic, queue_id in first + values[1:]]
        count = module.hide(sends, NOW_MS, 18, ahead_ms_max, timed_max, ("LEVELS", "TIMES"))
        return [count, *map(fields_of, sends)]

    for one in near(values[0][0] if values else b""):
        same_outcome(lambda one=one: hidden(pure, one), lambda one=one: hidden(compiled, one))


@hostile
@given(st.lists(st.tuples(texts, topics), max_size=4), st.sampled_from(["broker-a", "北京", ""]))
def test_recall_handles(values: list[tuple[bytes, str]], broker: str) -> None:
    def found(module: ModuleType) -> object:
        return module.handles([made(module, text, topic=topic) for text, topic in values], "TIMES", broker)

    same_outcome(lambda: found(pure), lambda: found(compiled))


@hostile
@given(texts, st.integers(-(2**31), 2**31), st.sampled_from([(), (1000,), (1000, 5000)]))
def test_codes_of_queue_entries(text: bytes, tags_code: int, levels_ms: tuple[int, ...]) -> None:
    def found(module: ModuleType, text: bytes) -> object:
        entry = OTHERS[id(module)][1].Entry(77, 100, "T", 0, 0, tags_code, NOW_MS, 0, 0, b"", b"", text)
        codes = module.codes([entry], levels_ms)
        return codes, module.pack_coded([entry], codes), module.handle(text, "b"), module.address(text)

    for one in near(text):
        same_outcome(lambda one=one: found(pure, one), lambda one=one: found(compiled, one))


@hostile
@given(
    st.binary(max_size=130),
    st.integers(-2, 130),
    st.integers(-2, 8),
    st.integers(-(2**62), 2**62),
    st.lists(st.integers(-3, 8), max_size=6),
)
def test_entries_at_offsets(data: bytes, at: int, count: int, first: int, steps: list[int]) -> None:
    offsets = [first + step for step in steps]
    same_outcome(
        lambda: pure.entries_at(data, at, count, first, offsets),
        lambda: compiled.entries_at(data, at, count, first, offsets),
    )


places = st.tuples(
    st.one_of(st.integers(0, 3000), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.integers(0, 1100), st.sampled_from([-1, 0x7FFFFFFF, -(2**31)])),
    st.one_of(st.sampled_from([NOW_MS, NOW_MS + 1, 17, -1, *[NOW_MS | bit for bit in BITS]]), st.integers(0, 2**62)),
)


@hostile
@given(st.lists(places, max_size=5), st.integers(0, 3000), st.integers(0, 1000), st.integers(0, 3000))
def test_how_many_are_ready(found: list[tuple[int, int, int]], bytes_max: int, start: int, end: int) -> None:
    same_outcome(
        lambda: pure.ready(found, NOW_MS, bytes_max, start, end, 1024),
        lambda: compiled.ready(found, NOW_MS, bytes_max, start, end, 1024),
    )


@hostile
@given(
    st.lists(st.tuples(texts, st.sampled_from(["orders", "Ω", "t" * 200])), min_size=1, max_size=3),
    st.integers(0, 12),
    st.data(),
)
def test_deliveries(values: list[tuple[bytes, str]], sys_flag: int, data: st.DataObject) -> None:
    records = OTHERS[id(pure)][1]
    sends = [
        made(pure, text, topic=topic, body=b"b", born_host=HOST, sys_flag=sys_flag) for text, topic in values
    ]
    log = bytearray(sum(records.size_of(send, 8) for send in sends))
    records.encode_run(log, 0, 4096, sends, 9, HOST)
    for _ in range(data.draw(st.integers(0, 3))):
        log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    step = data.draw(st.sampled_from([0, 0, 0, 1, -1, -5000, 1 << 40]))
    found = [(send.log_offset + step, send.size, NOW_MS) for send in sends]  # type: ignore[attr-defined]
    if data.draw(st.booleans()):
        found = [(log_offset, size + data.draw(st.integers(-3, 3)), code) for log_offset, size, code in found]

    def read(module: ModuleType) -> list[object]:
        return [fields_of(send) for send in module.deliveries(bytes(log), 4096, found, "HALF")]

    same_outcome(lambda: read(pure), lambda: read(compiled))
