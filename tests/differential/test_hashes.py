"""The compiled hashes are the pure ones."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from gantry.leaves import COMPILED
from gantry.leaves import hashes as chosen
from testkit.compiled import fast, hostile
from testkit.compiled import pure as pure_leaf

compiled, pure = fast("hashes"), pure_leaf("hashes")


@hostile
@given(st.one_of(st.text(max_size=40), st.binary(max_size=40), st.from_regex(r"[a-z#%]{0,40}", fullmatch=True)))
def test_texts(text: str | bytes) -> None:
    assert compiled.java_hash(text) == pure.java_hash(text)
    assert compiled.index_hash(text) == pure.index_hash(text)


@hostile
@given(st.binary(max_size=400), st.integers(0, 17), st.sampled_from([bytes, bytearray, memoryview]))
def test_checksums_at_every_alignment(data: bytes, skip: int, kind: type) -> None:
    # Below 64 bytes one way of computing is used, above it another, and the rest of it a third.
    assert compiled.crc31(kind(data)[skip:]) == zlib.crc32(data[skip:]) & 0x7FFFFFFF


def test_the_hash_without_an_absolute_value_is_zero() -> None:
    assert pure.java_hash("polygenelubricants") == -(2**31)
    assert compiled.index_hash("polygenelubricants") == pure.index_hash("polygenelubricants") == 0


def test_the_leaves_in_use_are_the_compiled_ones_unless_told_otherwise() -> None:
    assert (chosen.crc31 is compiled.crc31) is COMPILED
