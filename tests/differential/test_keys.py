"""The compiled leaves of index and queues do with records what the pure ones do."""

from __future__ import annotations

from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from gantry.leaves import COMPILED
from gantry.leaves import keys as chosen
from testkit.compiled import fast, hostile
from testkit.compiled import pure as pure_leaf

compiled_keys, pure_keys = fast("keys"), pure_leaf("keys")
compiled_queues, pure_queues = fast("queues"), pure_leaf("queues")
compiled_records, pure_records = fast("records"), pure_leaf("records")
compiled_requests, pure_requests = fast("requests"), pure_leaf("requests")

SLOTS = 2100  # three pages, the last one short

MANY = b" ".join(b"w%d" % number for number in range(600))  # more than a record has in the index

texts = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"", b" ", b"a b", b" a  b ", b"Aa BB a a", "主题 b".encode(), MANY]),
)
values = st.lists(
    st.tuples(
        st.integers(0, 2**62),
        st.integers(0, 2**31 - 1),
        st.sampled_from(["T", "Orders", "主题"]),
        st.integers(0, 2),
        st.one_of(st.integers(0, 5), st.integers(0, 2**62)),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(0, 2**50),
        st.sampled_from([0, 4, 8, 12]),
        st.just(0),
        texts,
        texts,
        st.just(b""),
    ),
    max_size=12,
)
found = st.lists(
    st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**62), st.integers(0, 2**50)),
    max_size=20,
)


def fields(entries: list[object]) -> list[tuple[object, ...]]:
    return [(entry.log_offset, entry.queue_offset) for entry in entries]  # type: ignore[attr-defined]


@hostile
@given(values)
def test_hashes_of_keys(drawn: list[tuple[object, ...]]) -> None:
    pure, compiled = ([leaf.Entry(*value) for value in drawn] for leaf in (pure_records, compiled_records))
    assert pure_keys.hashed(pure) == compiled_keys.hashed(compiled)


@hostile
@given(values)
def test_records_by_queue(drawn: list[tuple[object, ...]]) -> None:
    results = []
    for queues, leaf in ((pure_queues, pure_records), (compiled_queues, compiled_records)):
        groups = queues.by_queue([leaf.Entry(*value) for value in drawn])
        results.append([(topic, queue_id, fields(group), *more) for topic, queue_id, group, *more in groups])
    assert results[0] == results[1]


@hostile
@given(
    st.lists(st.tuples(st.sampled_from(["T", "主题"]), st.integers(0, 2), st.sampled_from([0, 8])), max_size=12),
    st.dictionaries(st.tuples(st.sampled_from(["T", "主题"]), st.integers(0, 2)), st.integers(0, 2**62)),
)
def test_numbers_and_sizes_of_messages(drawn: list[tuple[str, int, int]], heads: dict[tuple[str, int], int]) -> None:
    results = []
    for queues, records, requests in (
        (pure_queues, pure_records, pure_requests),
        (compiled_queues, compiled_records, compiled_requests),
    ):
        sends = [requests.Send(topic=topic, queue_id=queue, sys_flag=flag) for topic, queue, flag in drawn]
        given_out = queues.number(sends, heads)
        results.append((given_out, [send.queue_offset for send in sends], records.run_bytes(sends, 20)))
    assert results[0] == results[1]


def linked(keys: ModuleType, drawn: list[tuple[int, int, int]], begin_ms: int, count: int, old: bytes) -> object:
    pages = {number: bytearray(old[:size]) for number, size in ((0, 4096), (1, 4096), (2, 4 * (SLOTS - 2048)))}
    asked: list[tuple[int, int]] = []

    def older(number: int, below: int) -> int:
        asked.append((number, below))
        return number % below

    packed = b"".join(pure_keys.FOUND.pack(*one) for one in drawn)
    return keys.link(packed, begin_ms, count, SLOTS, pages, older), pages, asked


@hostile
@given(found, st.integers(0, 2**50), st.integers(1, 1000), st.binary(min_size=8, max_size=8))
def test_links(drawn: list[tuple[int, int, int]], begin_ms: int, count: int, pattern: bytes) -> None:
    arguments = (drawn, begin_ms, count, pattern * 512)
    assert linked(pure_keys, *arguments) == linked(compiled_keys, *arguments)


@hostile
@given(found, st.integers(0, 3), st.integers(0, 2**50), st.integers(0, 2**50), st.integers(0, 4))
def test_matches(drawn: list[tuple[int, int, int]], modulus: int, begin_ms: int, end_ms: int, count_max: int) -> None:
    # Few different hashes, so that some are the wanted one.
    packed = b"".join(pure_keys.FOUND.pack(value % (modulus + 1), at, ms) for value, at, ms in drawn)
    for key_hash in range(4):
        arguments = (packed, key_hash, begin_ms, end_ms, count_max)
        assert pure_keys.matches(*arguments) == compiled_keys.matches(*arguments)


def test_the_leaves_in_use_are_the_compiled_ones_unless_told_otherwise() -> None:
    assert (chosen.link is compiled_keys.link) is COMPILED
