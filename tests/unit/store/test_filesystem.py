"""syncfs: where it is relied on, and that it is a sync at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gantry.errors import SyncFailedError
from gantry.store import filesystem


@pytest.mark.parametrize(
    ("release", "is_reporting"),
    [("5.8.0", True), ("6.1.0-18-amd64", True), ("5.7.19", False), ("4.19.0", False), ("5.15-rc1", True), ("?", False)],
)
def test_a_kernel_that_keeps_silent_about_lost_pages_is_not_relied_on(release: str, is_reporting: bool) -> None:
    assert filesystem.is_reporting(release) is is_reporting


def test_a_file_system_that_is_not_known_is_not_relied_on() -> None:
    assert filesystem.opened("/proc") is None
    assert filesystem.opened("/nowhere") is None


def test_a_known_file_system_syncs_and_says_when_the_named_file_is_not_there(tmp_path: Path) -> None:
    found = filesystem.opened(str(tmp_path))
    if found is None:
        pytest.skip("missing a folder for tests on ext4, XFS, btrfs or F2FS, on Linux 5.8 or newer")
    (tmp_path / "a").write_bytes(b"x")
    found.sync(str(tmp_path / "a"))
    with pytest.raises(SyncFailedError):
        found.sync(str(tmp_path / "b"))
    found.close()
    found.close()
    with pytest.raises(SyncFailedError):
        found.sync(str(tmp_path / "a"))


def test_a_descriptor_is_not_left_behind(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    filesystem.opened("/proc")
    found = filesystem.opened(str(tmp_path))
    if found is not None:
        found.close()
    assert len(os.listdir("/proc/self/fd")) == before
