"""A small store in a temporary folder, messages for it, and a reader of its files that shares no code with it."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gantry.leaves import frames, properties
from gantry.store.background import Background, InlineBackground
from gantry.store.disk import Disk, RealDisk
from gantry.store.opening import open_store
from gantry.store.settings import Flush, StoreSettings
from gantry.store.store import Store
from testkit.simclock import SimClock

HOST = bytes((10, 1, 2, 3)) + (10911).to_bytes(4, "big")

SMALL = StoreSettings(
    root="",
    segment_bytes=16384,
    queue_file_entries=8,
    index_slots=16,
    index_entries=20,
    flush=Flush.ASYNC,
    store_host=HOST,
    clean_forcibly=False,
    disk_used_max=2.0,
    disk_used_refuse=2.0,
)


def small(folder: Path | str, **changes: Any) -> StoreSettings:
    """Settings for files that a dozen messages fill; retention by age only."""
    return dataclasses.replace(SMALL, root=str(folder), **changes)


def opened(
    settings: StoreSettings,
    clock: SimClock | None = None,
    background: Background | None = None,
    disk: Disk | None = None,
) -> Store:
    """Open it, confirmed locally."""
    store = open_store(settings, disk or RealDisk(), clock or SimClock(), background or InlineBackground())
    store.confirm_locally()
    return store


def message(
    topic: str = "orders", queue_id: int = 0, body: bytes = b"x" * 100, tags: str = "", keys: str = "", **more: Any
) -> frames.Send:
    """A message as the broker hands it to the store."""
    pairs = {"TAGS": tags, "KEYS": keys} | more.pop("pairs", {})
    packed = properties.pack({name: value for name, value in pairs.items() if value})
    traits, unique_key, found, tags_code = properties.scan(packed)
    return frames.Send(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=packed,
        traits=traits,
        unique_key=unique_key,
        keys=found,
        tags_code=tags_code,
        born_host=HOST,
        **more,
    )


def bodies(store: Store, topic: str = "orders", queue_id: int = 0, start: int | None = None) -> list[bytes]:
    """All bodies of a queue, pulled."""
    found: list[bytes] = []
    ends = store.queue_range(topic, queue_id)
    assert ends is not None
    offset = ends[0] if start is None else start
    while offset < ends[1]:
        fetched = store.reader.fetch(topic, queue_id, offset, 7, 1 << 20, None)
        assert fetched.buffers, fetched
        found += [one.body for one in parse(b"".join(bytes(buffer) for buffer in fetched.buffers), 0)]
        offset = fetched.next_offset
    return found


def crash(store: Store) -> None:
    """The process is gone; what it wrote is there."""
    assert store._parts.lock is not None
    store._parts.lock.release()


class Stored(NamedTuple):
    """One record, by the independent reader."""

    log_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_ms: int
    body: bytes
    properties: bytes


def parse(data: bytes, at: int) -> Iterator[Stored]:
    """RocketMQ's MessageDecoder, in the order of its fields, IPv4 hosts only."""
    while at + 8 <= len(data):
        size, magic = struct.unpack_from(">ii", data, at)
        if magic not in (-626843481, -626843477):
            return
        crc, queue_id, _, queue_offset, log_offset, _, _ = struct.unpack_from(">iiiqqiq", data, at + 8)
        (store_ms,) = struct.unpack_from(">q", data, at + 56)
        (body_size,) = struct.unpack_from(">i", data, at + 84)
        body = data[at + 88 : at + 88 + body_size]
        assert zlib.crc32(body) & 0x7FFFFFFF == crc
        topic_at = at + 88 + body_size + 1
        topic = data[topic_at : topic_at + data[topic_at - 1]]
        text_at = topic_at + len(topic) + 2
        text = data[text_at : text_at + struct.unpack_from(">h", data, text_at - 2)[0]]
        assert text_at + len(text) == at + size
        yield Stored(log_offset, size, topic.decode(), queue_id, queue_offset, store_ms, body, text)
        at += size


def read_folder(root: Path | str) -> list[Stored]:
    """All records of a store's segments."""
    found: list[Stored] = []
    for path in sorted((Path(root) / "commitlog").iterdir()):
        for one in parse(path.read_bytes(), 0):
            assert int(path.name) <= one.log_offset
            found.append(one)
    return found


def read_queue(root: Path | str, topic: str, queue_id: int) -> dict[int, tuple[int, int, int]]:
    """Entries by queue offset: (log offset, size, tag code)."""
    found = {}
    for path in sorted((Path(root) / "consumequeue" / topic / str(queue_id)).iterdir()):
        data = path.read_bytes()
        for at in range(0, len(data), 20):
            entry = struct.unpack_from(">qiq", data, at)
            if entry[1] > 0:
                found[(int(path.name) + at) // 20] = entry
    return found


def query_index(root: Path | str, slots: int, key: str) -> list[int]:
    """Log offsets under `topic#key`, newest first, straight from the files."""
    value = 0
    for unit in key.encode():
        value = (31 * value + unit) & 0xFFFFFFFF
    value = abs(value - (1 << 32) if value >> 31 else value)
    found = []
    for path in sorted((Path(root) / "index").iterdir(), reverse=True):
        data = path.read_bytes()
        (number,) = struct.unpack_from(">i", data, 40 + value % slots * 4)
        while number > 0:
            hashed, log_offset, _, before = struct.unpack_from(">iqii", data, 40 + slots * 4 + number * 20)
            if hashed == value:
                found.append(log_offset)
            number = before if before < number else 0  # else a chain that a crash bent goes round
    return found
