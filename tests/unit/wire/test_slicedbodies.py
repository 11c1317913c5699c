"""An object that is read in slices is the same as in one piece, and so is what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gantry.wire import bodies, slicedbodies

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc") | st.text(), inner, max_size=4),
    max_leaves=12,
)


def loaded(body: bytes, path: tuple[str, ...] = ("a", "b")) -> tuple[dict[str, object], int]:
    """Return the object, and the number of slices."""
    steps, count = slicedbodies.load_in_slices(body, path), 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


@given(st.dictionaries(st.sampled_from("abc"), VALUES), st.sampled_from([None, 1]))
def test_an_object_is_read_as_in_one_piece(value: dict[str, object], indent: int | None) -> None:
    body = json.dumps(value, indent=indent).encode()
    assert loaded(body)[0] == bodies.loads_object(body)


@given(st.text(alphabet='{}[]:,"ab1 \\e.-', max_size=30))
@example('{"a":{"b":{}}')
@example('{"a":{"b":{"c":1}}}}')
@example('{"a" 1}')
@example('{a:{b:{0:1}}}')
@example('{1:2}')
@example('{"a":{"b":{"\\ud800":1}}}')
@example("[]")
def test_what_is_no_object_is_read_or_refused_as_in_one_piece(text: str) -> None:
    try:
        expected: object = bodies.loads_object(text.encode())
    except bodies.MalformedBodyError as error:
        with pytest.raises(bodies.MalformedBodyError) as found:
            loaded(text.encode())
        assert str(found.value) == str(error)
    else:
        assert loaded(text.encode())[0] == expected


def test_many_members_on_the_path_are_many_slices() -> None:
    table = {str(number): {"x": number} for number in range(2000)}
    found, slices = loaded(json.dumps({"a": {"b": table, "c": 1}}).encode())
    assert found == {"a": {"b": table, "c": 1}} and slices >= 10


def test_what_nests_too_deep_or_cannot_be_encoded_is_refused() -> None:
    for body in (b'{"a":{"b":{"x":' + b"[" * 70 + b"]" * 70 + b"}}}", b'{"a":{"b":{"x":"\\ud800"}}}'):
        with pytest.raises(bodies.MalformedBodyError):
            loaded(body)


def test_one_name_again_and_again_is_many_slices_too() -> None:
    found, slices = loaded(b'{"a":{"b":{' + b'"x":1,' * 2000 + b'"x":2}}}')
    assert found == {"a": {"b": {"x": 2}}} and slices >= 10
