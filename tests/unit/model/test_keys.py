"""How a value given for a key is read, and what is said about one that cannot be meant."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field

import pytest

from gantry.model.keys import BYTES, choice, number, one_of, read, several, switch, table, words


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Inner:
    size: int = number(1 << 20, 4096, 1 << 30, BYTES, "A size.")
    wait_s: float = number(1.0, 0.5, 60.0, "seconds", "A time.", {-1: "for ever"})


@dataclass(frozen=True, slots=True)
class Outer:
    count: int = number(1, 1, 9, "things", "A number.", {0: "none"}, is_hot=True)
    bits: int = one_of(2, {2: "write", 4: "read"}, "One of a few.")
    is_on: bool = switch(True, "A switch.")
    colour: Colour = choice(Colour.RED, "A choice.")
    text: str = words("ab", "A text.", "[a-z]*", "small letters", high=3)
    parts: tuple[str, ...] = several(("a",), 1, 2, "[a-z]", "a small letter", "A list.")
    inner: Inner = field(default_factory=Inner)


KEYS = table(Outer)


def test_the_table_follows_the_declaration() -> None:
    assert list(KEYS) == ["count", "bits", "is_on", "colour", "text", "parts", "inner.size", "inner.wait_s"]
    assert (KEYS["inner.size"].default, KEYS["inner.size"].kind, KEYS["count"].key.is_hot) == (1 << 20, int, True)
    assert Outer() == Outer(1, 2, True, Colour.RED, "ab", ("a",), Inner(1 << 20, 1.0))


def test_a_key_without_a_declaration_is_a_bug() -> None:
    @dataclass
    class Bare:
        name: str = "x"

    with pytest.raises(AssertionError, match="name is declared without a Key"):
        table(Bare)


@pytest.mark.parametrize(
    ("key", "given", "found"),
    [
        ("count", "7", 7),
        ("count", " 0 ", 0),
        ("bits", 4, 4),
        ("is_on", "off", False),
        ("colour", "BLUE", Colour.BLUE),
        ("text", "", ""),
        ("parts", "a; b", ("a", "b")),
        ("parts", ["a"], ("a",)),
        ("inner.size", "64 kib", 64 << 10),
        ("inner.wait_s", 60, 60.0),
        ("inner.wait_s", "5e-1", 0.5),
        ("inner.wait_s", "-1", -1.0),
    ],
)
def test_a_value_within_its_bounds_is_read(key: str, given: object, found: object) -> None:
    result = read(given, KEYS[key])
    assert result == found and type(result) is type(found)


WHOLE = "a whole number of things from 1 to 9, or 0 (none)"
TIME = "a number of seconds from 0.5 to 60, or -1 (for ever)"


@pytest.mark.parametrize(
    ("key", "given", "expected"),
    [
        *(("count", given, WHOLE) for given in (10, -1, "", "1KiB", "9" * 30, 1.0, True, None, [1], "１")),
        *(("inner.wait_s", given, TIME) for given in ("nan", float("nan"), "inf", "0", 60.1, "1_0", "", True, "1e400")),
        ("inner.size", "4095", "a whole number of bytes from 4 KiB to 1 GiB"),
        ("inner.size", "2GiB", "a whole number of bytes from 4 KiB to 1 GiB"),
        ("bits", 6, "one of 2 (write), 4 (read)"),
        ("is_on", "perhaps", "true or false"),
        ("colour", "", "one of red, blue"),
        *(("text", given, "small letters") for given in ("abcd", "A", "a\n", False, 1.5, None, ["a"])),
        *(("parts", given, "1 to 2 of: a small letter") for given in ("", [], "a,b,c", ["A"], [None], 5, {"a": 1})),
    ],
)
def test_anything_else_is_refused_with_type_bounds_and_unit(key: str, given: object, expected: str) -> None:
    with pytest.raises(ValueError, match=f"^expected {re.escape(expected)}$"):
        read(given, KEYS[key])
