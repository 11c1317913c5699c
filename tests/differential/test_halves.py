"""The compiled halves do what the pure ones do, on what producers send and on what nobody should."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gantry.leaves import requests
from testkit.compiled import fast, hostile, near, same_outcome
from testkit.compiled import pure as pure_leaf

compiled, pure = fast("halves"), pure_leaf("halves")
modules = {
    id(compiled): (fast("frames"), fast("records"), fast("properties")),
    id(pure): (pure_leaf("frames"), pure_leaf("records"), pure_leaf("properties")),
}

HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
HOST_V6 = bytes(range(16)) + (10911).to_bytes(4, "big")
OTHERS = [b"UNIQ_KEY", b"TRAN_MSG", b"TAGS", b"KEYS", b"DELAY", b"WAIT", b"X", b""]
NAMES = [*pure.OURS, *pure.IMMUNITY, pure.GROUP, *OTHERS]
VALUES = [b"", b"0", b"7", b"007", b"-1", b"+5", b"true", b"2147483648", b"2147483649", b"9" * 18, b"9" * 19, b"1" * 40]
ODD_VALUES = ["北京".encode(), b"a\x01b", b"1 "]
values = st.one_of(st.sampled_from([*VALUES, *ODD_VALUES]), st.binary(max_size=12))
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
FACTS = pure.HalfFacts.__slots__


@hostile
@given(texts, st.integers(0, 2**63 - 1))
def test_what_the_properties_say(text: bytes, queue_offset: int) -> None:
    def facts(module: object, text: bytes) -> list[object]:
        found = module.HalfFacts(text, queue_offset)  # type: ignore[attr-defined]
        return [getattr(found, name) for name in FACTS]

    for one in near(text):
        same_outcome(lambda one=one: facts(pure, one), lambda one=one: facts(compiled, one))


def made(module: object, text: bytes, **fields: object) -> object:
    frames, _, properties = modules[id(module)]
    traits, unique_key, keys, tags_code = properties.scan(text)
    scanned = {"traits": traits, "unique_key": unique_key, "keys": keys, "tags_code": tags_code}
    return frames.Send(310, properties=text, **scanned, **fields)


def fields_of(send: object) -> dict[str, object]:
    return {name: getattr(send, name) for name in requests.Send.__slots__}


@hostile
@given(
    texts,
    st.sampled_from(["orders", "Ω", "t" * 127]),
    st.integers(-2, 2**31 - 1),
    st.sampled_from(["payers", "", "a\x01b"]),
    st.sampled_from([0, 4, 5, 12]),
)
def test_the_disguise(text: bytes, topic: str, queue_id: int, group: str, sys_flag: int) -> None:
    def disguised(module: object) -> dict[str, object]:
        send = made(module, text, topic=topic, queue_id=queue_id, group=group, sys_flag=sys_flag)
        module.disguise(send, "HALF")  # type: ignore[attr-defined]
        return fields_of(send)

    same_outcome(lambda: disguised(pure), lambda: disguised(compiled))


@hostile
@given(
    texts,
    st.sampled_from(["orders", "Ω", "t" * 127, "t" * 200]),
    st.binary(max_size=40),
    st.sampled_from([HOST, HOST_V6]),
    st.sampled_from([HOST, HOST_V6]),
    st.data(),
)
def test_the_message_of_a_record(
    text: bytes, topic: str, body: bytes, born_host: bytes, store_host: bytes, data: st.DataObject
) -> None:
    _, records, _ = modules[id(pure)]
    small = st.integers(-(2**31), 2**31 - 1)
    numbers = {name: data.draw(small, name) for name in ("sys_flag", "flag", "reconsume_times", "born_ms")}
    send = made(pure, text, topic=topic, body=body, born_host=born_host, prepared_offset=77, **numbers)
    send.queue_offset = 5  # type: ignore[attr-defined]
    size = records.size_of(send, len(store_host))
    record = bytearray(size)
    records.encode_run(record, 0, 4711, [send], 9, store_host)
    for _ in range(data.draw(st.integers(0, 3))):
        record[data.draw(st.integers(0, size - 1))] = data.draw(st.integers(0, 255))
    at, end = data.draw(st.sampled_from([(0, size), (0, size - 1), (1, size), (0, size + 1), (-1, size)]))

    def read(module: object) -> dict[str, object]:
        return fields_of(module.message_at(record, at, end))  # type: ignore[attr-defined]

    same_outcome(lambda: read(pure), lambda: read(compiled))
