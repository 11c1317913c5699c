from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gantry.store import filenames, recoverypoint
from gantry.store.disk import RealDisk
from gantry.store.recoverypoint import IndexState, RecoveryPoint

POINT = RecoveryPoint(
    generation=1,
    clean=False,
    sizes=(1 << 30, 300_000, 5_000_000, 20_000_000),
    flushed=5 << 40,
    dispatched=4 << 40,
    store_ms=1_700_000_000_000,
    java=(1, 2, 3, 4, 5),
    java_before=(6, 7, 8, 9, -1),
    index=IndexState("20260101000000000", "20260102000000000", 2, 77),
)


def _save(folder: Path, point: RecoveryPoint) -> Path:
    (folder / "gantry").mkdir(exist_ok=True)
    recoverypoint.save(RealDisk(), str(folder), point)
    return Path(filenames.recovery(str(folder)))


def test_a_point_comes_back(tmp_path: Path) -> None:
    assert recoverypoint.load(RealDisk(), str(tmp_path)) is None
    _save(tmp_path, POINT)
    assert recoverypoint.load(RealDisk(), str(tmp_path)) == POINT


def test_the_newest_point_counts_and_two_are_kept(tmp_path: Path) -> None:
    for generation in range(1, 6):
        path = _save(tmp_path, dataclasses.replace(POINT, generation=generation))
        found = recoverypoint.load(RealDisk(), str(tmp_path))
        assert found is not None and found.generation == generation
    assert path.stat().st_size == 8192


@pytest.mark.parametrize("at", [0, 9, 20, 60, 100, 150, 195])
def test_a_torn_newest_point_leaves_the_one_before(tmp_path: Path, at: int) -> None:
    _save(tmp_path, POINT)
    path = _save(tmp_path, dataclasses.replace(POINT, generation=2, clean=True))
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)
    assert recoverypoint.load(RealDisk(), str(tmp_path)) == POINT


def test_no_valid_point_is_no_point(tmp_path: Path) -> None:
    path = _save(tmp_path, POINT)
    for content in (b"", bytes(8192), b"\xff" * 8192, path.read_bytes()[:100]):
        path.write_bytes(content)
        assert recoverypoint.load(RealDisk(), str(tmp_path)) is None
