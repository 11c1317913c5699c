"""The compiled copies of send-backs are what the pure ones are, on good records and on hostile bytes."""

from __future__ import annotations

from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from gantry.leaves import frames, records, requests
from testkit.compiled import fast, hostile, near, same_outcome
from testkit.compiled import pure as pure_leaf

compiled, pure = fast("sendbacks"), pure_leaf("sendbacks")
HOSTS = [bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big"), bytes(range(16)) + (10911).to_bytes(4, "big")]
BASE = 1 << 40
NAMES = [*sorted(pure.SPENT | pure.ORIGINS), b"UNIQ_KEY", b"TAGS", b"KEYS", b"X", b"", b"DELAYS", b"RETRY_TOPI"]
values = st.one_of(
    st.sampled_from([b"", b"3", b"orders", "主题".encode(), b"a\x01b", b"\xff", b"t" * 255, b"t" * 256]),
    st.binary(max_size=12),
)
texts = st.one_of(
    st.builds(
        lambda found, ends_open: b"".join(name + b"\x01" + value + b"\x02" for name, value in found)[
            : -1 if ends_open else None
        ],
        st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=8),
        st.booleans(),
    ),
    st.binary(max_size=60),
)
messages = st.tuples(texts, st.sampled_from(["%RETRY%g", "orders", "主题", "t" * 200]), st.binary(max_size=9))


def found_by(module: ModuleType, *arguments: object) -> list[object]:
    made = module.copies(*arguments)
    return [
        None if one is None else ({name: getattr(one[0], name) for name in requests.Send.__slots__}, one[1])
        for one in made
    ]


@hostile
@given(
    st.lists(messages, min_size=1, max_size=4),
    st.sampled_from(HOSTS),
    st.sampled_from(HOSTS),
    st.sampled_from([0, 200, 1 << 20]),
    st.integers(-100, 2),
)
def test_copies(
    drawn: list[tuple[bytes, str, bytes]], born_host: bytes, store_host: bytes, bytes_max: int, short: int
) -> None:
    sends = [
        a_send(text, topic, body, born_host, number) for number, (text, topic, body) in enumerate(drawn)
    ]
    log = bytearray(sum(records.size_of(send, len(store_host)) for send in sends))
    records.encode_run(log, 0, BASE, sends, 7, store_host)
    offsets = [send.log_offset for send in sends]
    offsets += [offsets[0], BASE - 1, BASE + 1, BASE + len(log), BASE + len(log) - 90, 0, -1]
    for one in near(bytes(log)):
        arguments = one, BASE, BASE + len(log) + short, offsets, "%RETRY%g", bytes_max
        same_outcome(
            lambda arguments=arguments: found_by(pure, *arguments),
            lambda arguments=arguments: found_by(compiled, *arguments),
        )


def a_send(text: bytes, topic: str, body: bytes, born_host: bytes, number: int) -> frames.Send:
    send = frames.Send(topic=topic, properties=text, body=body, born_host=born_host, sys_flag=13, queue_id=number)
    send.queue_offset = number + 1
    return send


@hostile
@given(st.binary(max_size=200), st.lists(st.integers(-2, 210), max_size=4), st.integers(0, 210))
def test_copies_of_hostile_bytes(data: bytes, offsets: list[int], end: int) -> None:
    same_outcome(
        lambda: found_by(pure, data, 0, end, offsets, "%RETRY%g", 1 << 20),
        lambda: found_by(compiled, data, 0, end, offsets, "%RETRY%g", 1 << 20),
    )
