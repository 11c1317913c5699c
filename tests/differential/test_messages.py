"""The compiled leaf for clients does what the pure one does: batches, packed properties, answers to pulls."""

from __future__ import annotations

from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from differential.test_records import NAMES, V4, V6, VALUES, messages, run
from gantry.leaves import frames, records
from gantry.model.message import StoredMessage
from gantry.wire.record import host_text
from testkit.compiled import fast, hostile, near, same_outcome
from testkit.compiled import pure as pure_leaf

compiled, pure = fast("messages"), pure_leaf("messages")
compiled_properties, pure_properties = fast("properties"), pure_leaf("properties")

TEXTS = [*VALUES, "\x02", "\ud800"]

parts = st.lists(
    st.tuples(
        st.one_of(st.integers(-(2**31), 2**31 - 1), st.sampled_from([2**31, -(2**31) - 1])),
        st.binary(max_size=40),
        st.one_of(st.binary(max_size=40), st.just(bytes(32_768))),
    ),
    max_size=4,
)


@hostile
@given(parts)
def test_batches_are_the_same(batch: list[tuple[int, bytes, bytes]]) -> None:
    same_outcome(lambda: compiled.join(batch), lambda: pure.join(batch))


@hostile
@given(st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=5)), st.sampled_from(TEXTS)))
def test_packed_properties_are_the_same(pairs: dict[str, str]) -> None:
    same_outcome(lambda: compiled_properties.pack(pairs), lambda: pure_properties.pack(pairs))


@hostile
@given(messages, st.sampled_from([V4, V6]), st.sampled_from([1, 40, 1 << 20]), st.integers(0, 3), st.data())
def test_answers_to_pulls_are_the_same(
    values: list[tuple[object, ...]], store_host: bytes, bytes_max: int, damages: int, data: st.DataObject
) -> None:
    answer = run(records, frames, values, store_host)
    for _ in range(damages if answer else 0):
        answer[data.draw(st.integers(0, len(answer) - 1))] = data.draw(st.integers(0, 255))
    for near_it in near(answer):
        same_outcome(lambda at=near_it: read(compiled, at, bytes_max), lambda at=near_it: read(pure, at, bytes_max))


def read(leaf: ModuleType, answer: bytes, bytes_max: int) -> tuple[list[StoredMessage], int]:
    found: list[StoredMessage]
    found, at = leaf.read(answer, 0, bytes_max, StoredMessage, host_text, "broker-a")
    return found, at


def test_messages_have_the_fields_of_the_model_in_its_order() -> None:
    assert tuple(StoredMessage.__dataclass_fields__) == pure.FIELDS
