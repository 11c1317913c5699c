"""Message properties: every reader sees the same pairs, whatever the bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gantry.leaves import hashes, properties

NAMES = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"WAIT", b"DELAY", b"a", b""])
VALUES = st.sampled_from([b"true", b"false", b"0", b"1", b"-1", b"", b"v\x01w", b"\xff", "\u4f60".encode()])
PIECES = st.lists(st.one_of(NAMES, VALUES, st.just(b"\x01"), st.just(b"\x02"), st.binary(max_size=3)), max_size=12)
STRINGS = PIECES.map(b"".join)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=10)


@given(STRINGS)
def test_scan_get_and_parse_agree(data: bytes) -> None:
    traits, unique_key, keys, tags_code = properties.scan(data)
    assert (properties.get(data, b"UNIQ_KEY") or b"") == unique_key
    assert (properties.get(data, b"KEYS") or b"") == keys
    tags = properties.get(data, b"TAGS")
    assert tags_code == (0 if tags is None else hashes.java_hash(tags))
    assert bool(traits & properties.TRAIT_UNIQUE_KEY) == bool(unique_key)
    assert bool(traits & properties.TRAIT_ENDS_OPEN) == (data[-1:] not in (b"", b"\x02"))
    parsed = properties.parse(data)
    assert parsed.get("KEYS", "") == keys.decode("utf-8", "replace")


@given(STRINGS, st.lists(NAMES.filter(bool), max_size=5, unique=True))
def test_pick_is_get_for_each_name(data: bytes, names: list[bytes]) -> None:
    assert properties.pick(data, tuple(names)) == [properties.get(data, name) for name in names]


@given(STRINGS, TEXTS, TEXTS)
def test_what_is_added_counts_and_nothing_else_changes(data: bytes, name: str, value: str) -> None:
    longer = properties.add(data, name.encode(), value.encode())
    assert properties.parse(longer) == {**properties.parse(data), name: value}
    assert longer.endswith(b"\x02")


@given(st.dictionaries(TEXTS, TEXTS))
def test_what_is_packed_reads_back(table: dict[str, str]) -> None:
    assert properties.parse(properties.pack(table)) == table


@given(st.binary(max_size=30))
def test_a_hash_is_32_bits_wide_and_its_index_hash_not_negative(data: bytes) -> None:
    assert -(2**31) <= hashes.java_hash(data) < 2**31
    assert 0 <= hashes.index_hash(data) < 2**31
    assert hashes.java_hash(data) == hashes.java_hash(data.decode("utf-8", "replace"))
