"""The compiled records of leases and acknowledgements are what the pure ones are, on good and on hostile bytes."""

from __future__ import annotations

import base64
import json
from types import ModuleType

from hypothesis import example, given
from hypothesis import strategies as st

from gantry.leaves import frames, records, requests
from testkit.compiled import fast, hostile, near, same_outcome
from testkit.compiled import pure as pure_leaf

compiled, pure = fast("leases"), pure_leaf("leases")
HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
BASE = 1 << 40
I64 = (1 << 63) - 1
texts = st.one_of(
    st.sampled_from(["g", "orders", "%RETRY%g_orders", "主题", 'a "b"', "back\\slash", "\x7f", ""]), st.text(max_size=9)
)
numbers = st.one_of(
    st.integers(0, 40), st.sampled_from([0, 10**17, 10**18 - 1, 10**18, I64 >> 1]), st.integers(-9, I64 >> 1)
)
keys = st.tuples(texts, texts, st.one_of(numbers, st.sampled_from([1 << 31, (1 << 31) - 1])), numbers, numbers)
places = st.tuples(
    st.sampled_from(["rmq_sys_REVIVE_LOG_c", "主题"]), st.integers(0, 7), texts, st.just(HOST), st.integers(0, I64)
)
mores = st.sampled_from(["", ',"cid":"c@1"', ',"cid":"c@1","gen":3,"again":1,"move":1', ',"again":1', ',"c":"x"'])
offsets = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=32, unique=True).map(sorted)


def fields(send: requests.Send) -> dict[str, object]:
    return {name: getattr(send, name) for name in requests.Send.__slots__}


@hostile
@given(keys, numbers, offsets, mores, places)
def test_a_lease_is_laid_out(key: tuple, end_ms: int, drawn: list[int], more: str, place: tuple) -> None:  # type: ignore[type-arg]
    same_outcome(
        lambda: fields(pure.lease("timer", key, end_ms, drawn, more, place)),
        lambda: fields(compiled.lease("timer", key, end_ms, drawn, more, place)),
    )


@hostile
@given(keys, offsets, st.booleans(), numbers, places)
def test_an_acknowledgement_is_laid_out(key: tuple, drawn: list[int], moved: bool, due: int, place: tuple) -> None:  # type: ignore[type-arg]
    same_outcome(
        lambda: fields(pure.ack("timer", key, drawn, moved, due, place)),
        lambda: fields(compiled.ack("timer", key, drawn, moved, due, place)),
    )


def stored(sends: list[requests.Send]) -> bytearray:
    for number, send in enumerate(sends):
        send.queue_offset = number
    log = bytearray(sum(records.size_of(send, len(HOST)) for send in sends))
    records.encode_run(log, 0, BASE, sends, 7, HOST)
    return log


def named_by(module: ModuleType, log: bytes, found: list[tuple[int, int, int]], short: int) -> object:
    return module.named(log, BASE, BASE + len(log) + short, found)


@hostile
@given(
    st.lists(st.tuples(keys, offsets, mores, places, st.integers(0, 3)), min_size=1, max_size=4), st.integers(-200, 2)
)
def test_records_are_read(drawn: list[tuple], short: int) -> None:  # type: ignore[type-arg]
    sends = []
    for key, some, more, place, kind in drawn:
        topic = "timer" if kind < 3 else "主题"
        try:
            write = compiled.lease if kind else compiled.ack
            made = write(topic, key, *((7, some, more) if kind else (some, False, 9)), place)
        except UnicodeEncodeError:
            return
        sends.append(made)
    log = stored(sends)
    found = [(send.log_offset, send.size, 0) for send in sends]
    found += [(BASE - 1, 100, 0), (BASE, 5, 0), (BASE + 1, sends[0].size, 0), (BASE, sends[0].size + 1, 0), (0, -1, 0)]
    for one in near(bytes(log)):
        same_outcome(
            lambda one=one: named_by(pure, one, found, short), lambda one=one: named_by(compiled, one, found, short)
        )


def test_what_is_written_is_read() -> None:
    key, place = ("g", "%RETRY%g_orders", 2, 100, 1_700_000_000_000), ("revive", 3, "broker-a", HOST, 5)
    for module in (pure, compiled):
        sends = [
            compiled.lease("timer", key, 9, [100, 104], ',"cid":"c","gen":3,"again":1,"move":1', place),
            compiled.lease("timer", key, 9, list(range(100, 132)), "", place),
            compiled.ack("timer", key, [100, 101], True, 9, place),
            compiled.ack("timer", key, [100], False, 9, place),
            compiled.ack("timer", ("主题", *key[1:]), [100], False, 9, place),
        ]
        log = stored(sends)
        found = named_by(module, bytes(log), [(send.log_offset, send.size, 0) for send in sends], 0)
        assert found == [(key, True), (key, True), (key, False), (key, False), None]


def body_of(entries: list[dict[str, object]], **more: object) -> bytes:
    return json.dumps(
        {"acks": entries, "brokerName": "broker-a", **more}, sort_keys=True, separators=(",", ":")
    ).encode()


entries = st.fixed_dictionaries(
    {
        "b": st.one_of(
            st.binary(max_size=7).map(lambda bits: base64.b64encode(bits).decode()),
            st.text("AB/+9z=", max_size=9),
        ),
        "c": texts,
        "it": numbers,
        "pt": numbers,
        "q": numbers,
        "r": st.sampled_from(["0", "1", "2", "3", "", "00"]),
        "rq": numbers,
        "so": numbers,
        "t": texts,
    }
)  # fmt: skip


@hostile
@given(st.lists(entries, max_size=3))
def test_bodies_of_acknowledgements(drawn: list[dict[str, object]]) -> None:
    for one in near(body_of(drawn)):
        same_outcome(lambda one=one: pure.acks(one), lambda one=one: compiled.acks(one))


@hostile
@given(st.binary(max_size=80))
def test_hostile_bodies(data: bytes) -> None:
    good = body_of([entry("/////wA=")])
    for one in (data, good[:9] + data, good[: len(good) // 2] + data, data + good, good + data):
        same_outcome(lambda one=one: pure.acks(one), lambda one=one: compiled.acks(one))


def entry(bits: str) -> dict[str, object]:
    return {"b": bits, "c": "g", "it": 60_000, "pt": 5, "q": 2, "r": "1", "rq": 7, "so": 100, "t": "orders"}


def test_bits_are_those_of_the_base64() -> None:
    for module in (pure, compiled):
        for bits in (b"\x01", b"\xff\xff\xff\xff\x00", b"\x05\x80", bytes(range(1, 7)), b"\xff" * 6):
            found = module.acks(body_of([entry(base64.b64encode(bits).decode())] * 2))
            assert found == 2 * [("g", "orders", 1, 2, 100, 5, 60_000, 7, int.from_bytes(bits, "little"))]
        assert module.acks(body_of([entry(base64.b64encode(bytes(7)).decode())])) is None
        assert module.acks(body_of([{**entry("AQ=="), "x": 1}])) is None


queues = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1 << 31), st.integers(-I64 - 1, I64), st.lists(st.integers(0, I64))),
    max_size=9,
)
many = (0, 7, 5, [I64] * 3)


@hostile
@example(1, (I64, -I64 - 1, I64, -I64 - 1), [(2, 1 << 31, -I64 - 1, [-I64 - 1] * 32)] * 32, "", 0)
@example(1, (1, 2, 3, 4), [many], "0 7 1;0 qo7%5 1", 9)
@example(1, (1, 2, 3, 4), [many], "", frames.FRAME_BYTES_MAX - 200)
@example(1, (1, 2, 3, 4), [many], "", frames.FRAME_BYTES_MAX)
@given(
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.tuples(*[st.integers(-I64 - 1, I64)] * 4),
    queues,
    st.sampled_from(["", "0 qo7%5 1"]),
    st.sampled_from([0, 40_000, (1 << 23) - 1, 1 << 23, (1 << 23) + 1]),
)
def test_the_head_of_an_answer(
    opaque: int,
    numbers: tuple[int, ...],
    popped: list[tuple[int, int, int, list[int]]],
    counts: str,
    size: int,
) -> None:
    same_outcome(
        lambda: pure.found(opaque, *numbers, popped, counts, size),
        lambda: compiled.found(opaque, *numbers, popped, counts, size),
    )


def test_an_answer_says_what_was_popped() -> None:
    for module in (pure, compiled):
        head = module.found(9, 1_700_000_000_000, 60_000, 3, 12, [(0, 3, 17, (17,)), (1, 0, 5, (5, 6, 9))], "", 4)
        _, (answer,) = frames.decode(head + b"body", 0, len(head) + 4)
        assert (answer.code, answer.opaque, answer.flag, answer.remark) == (0, 9, frames.FLAG_RESPONSE, "FOUND")
        assert answer.body == b"body" and answer.ext == {
            "popTime": "1700000000000",
            "invisibleTime": "60000",
            "reviveQid": "3",
            "restNum": "12",
            "startOffsetInfo": "0 3 17;1 0 5",
            "msgOffsetInfo": "0 3 17;1 0 5,6,9",
        }
