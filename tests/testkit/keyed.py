"""Records by key, in one go."""

from __future__ import annotations

from gantry.store.reading import Reader


def query(reader: Reader, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> list[memoryview]:
    """Stored bytes of records with this key (or unique key) stored within [begin_ms, end_ms], newest first."""
    seen: dict[int, memoryview] = {}
    for hit in reader.walk(topic, key, begin_ms, end_ms):
        if isinstance(hit, int) and hit not in seen:
            found = reader.with_key(hit, topic, key.encode())
            if found is not None and begin_ms <= found.store_ms <= end_ms:
                seen[hit] = reader.bytes_at(hit, found.size)
        if len(seen) >= count_max:
            break
    return list(seen.values())
