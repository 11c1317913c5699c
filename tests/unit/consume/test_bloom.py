from __future__ import annotations

import pytest

from gantry.consume import bloom


# From the reference implementation of murmur3 (x64, 128 bits, seed 0).
@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", 0),
        (b"hello", 0xCBD8A7B341BD9B02),
        (b"hello, world", 0x342FAC623A5EBC8E),
        (b"The quick brown fox jumps over the lazy dog.", 0xCD99481F9EE902C9),
    ],
)
def test_the_hash_is_murmur3(data: bytes, digest: int) -> None:
    assert bloom.murmur3_first_64(data) == digest


def test_a_group_has_three_bits() -> None:
    found = bloom.positions("group", "topic")
    assert len(found) == 3 and all(0 <= bit < bloom.BITS for bit in found)
    assert found != bloom.positions("topic", "group")
