"""Java's hash, its absolute value for the index, and the checksum without a sign."""

from __future__ import annotations

import zlib

import pytest

from gantry.leaves import hashes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("hello", 99162322),
        ("polygenelubricants", -2147483648),
        ("\u4f60\u597d", 652829),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_text_and_its_utf8_bytes_have_javas_hash(text: str, expected: int) -> None:
    assert hashes.java_hash(text) == expected
    assert hashes.java_hash(text.encode()) == expected


def test_bytes_that_are_not_utf8_hash_as_their_replacement() -> None:
    assert hashes.java_hash(b"a\xffb") == hashes.java_hash("a\ufffdb")


def test_a_lone_surrogate_is_a_unit_like_any_other() -> None:
    assert hashes.java_hash("\ud800") == 0xD800


def test_the_hash_that_has_no_absolute_value_becomes_zero() -> None:
    assert hashes.index_hash("polygenelubricants") == 0


def test_an_index_hash_is_the_absolute_value() -> None:
    assert hashes.java_hash("orders#A1") == hashes.index_hash("orders#A1") or (
        hashes.java_hash("orders#A1") == -hashes.index_hash("orders#A1")
    )
    assert hashes.index_hash("orders#A1") >= 0


def test_the_checksum_has_no_top_bit() -> None:
    data = next(bytes([number]) for number in range(256) if zlib.crc32(bytes([number])) >= 2**31)
    assert hashes.crc31(data) == zlib.crc32(data) - 2**31
    assert hashes.crc31(memoryview(b"xay")[1:2]) == hashes.crc31(b"a")
