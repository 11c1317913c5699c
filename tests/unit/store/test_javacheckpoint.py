from __future__ import annotations

import struct
from pathlib import Path

from gantry.store import javacheckpoint
from gantry.store.disk import RealDisk
from gantry.store.javacheckpoint import JavaCheckpoint


def test_the_file_is_a_page_with_five_longs(tmp_path: Path) -> None:
    disk, checkpoint = RealDisk(), JavaCheckpoint(1, 2, 3, 4, 5)
    assert javacheckpoint.load(disk, str(tmp_path)) is None
    javacheckpoint.save(disk, str(tmp_path), checkpoint)
    data = (tmp_path / "checkpoint").read_bytes()
    assert len(data) == 4096 and struct.unpack_from(">5q", data) == (1, 2, 3, 4, 5) and not any(data[40:])
    assert javacheckpoint.load(disk, str(tmp_path)) == checkpoint


def test_what_it_trusts_is_three_seconds_before_the_earlier_of_two() -> None:
    assert JavaCheckpoint(10_000, 8_000).trusted_ms == 5_000
    assert JavaCheckpoint(0, 8_000).trusted_ms == 0


def test_a_file_too_short_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"short")
    assert javacheckpoint.load(RealDisk(), str(tmp_path)) is None
