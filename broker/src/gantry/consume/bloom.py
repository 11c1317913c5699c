"""The bits that RocketMQ's Bloom filter gives a consumer group: only written, into `consumerFilter.json`.

RocketMQ can compute at append which groups a message may concern, and keeps bits of them beside the queue.  We do
not, but its broker takes no file in which a group lacks its bits.  Sizes are its defaults (20 % error, 32 groups): 3
positions in 112 bits, from the first half of murmur3's 128-bit hash of `group#topic`.  Sources: `BloomFilter`, and
Guava's `Murmur3_128HashFunction`.
"""

from __future__ import annotations

from struct import Struct

BITS = 112
_POSITIONS = 3

_MASK = 2**64 - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_BLOCK = Struct("<QQ")


def positions(group: str, topic: str) -> list[int]:
    """Return the positions of this group's bits in the filter of this topic."""
    first = murmur3_first_64(f"{group}#{topic}".encode())
    low, high = _signed_32(first), _signed_32(first >> 32)
    found = []
    for number in range(1, _POSITIONS + 1):
        combined = _signed_32(low + number * high)
        found.append((~combined if combined < 0 else combined) % BITS)
    return found


def murmur3_first_64(data: bytes) -> int:
    """The first eight bytes of murmur3's x64 variant with 128 bits and seed 0, as an unsigned little-endian number."""
    one = two = 0
    whole = len(data) - len(data) % _BLOCK.size
    for first, second in _BLOCK.iter_unpack(data[:whole]):
        one = ((_rotated(one ^ _mixed_one(first), 27) + two) * 5 + 0x52DCE729) & _MASK
        two = ((_rotated(two ^ _mixed_two(second), 31) + one) * 5 + 0x38495AB5) & _MASK
    first, second = _BLOCK.unpack(data[whole:].ljust(_BLOCK.size, b"\0"))
    one ^= _mixed_one(first) ^ len(data)
    two ^= _mixed_two(second) ^ len(data)
    one = (one + two) & _MASK
    two = (two + one) & _MASK
    return (_finished(one) + _finished(two)) & _MASK


def _mixed_one(block: int) -> int:
    return _rotated(block * _C1 & _MASK, 31) * _C2 & _MASK


def _mixed_two(block: int) -> int:
    return _rotated(block * _C2 & _MASK, 33) * _C1 & _MASK


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _signed_32(value: int) -> int:
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000
