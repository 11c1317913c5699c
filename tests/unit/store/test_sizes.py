from __future__ import annotations

import pytest

from gantry.errors import StoreError
from gantry.store import filenames, sizes
from gantry.store.settings import StoreSettings
from testkit.keyed import query
from testkit.simdisk import SimDisk
from testkit.smallstore import message, opened, small

ROOT = "/s"
OURS = f"{ROOT}/gantry/"


def _folder(**changes: int) -> SimDisk:
    disk = SimDisk()
    store = opened(small(ROOT, **changes), disk=disk)
    store.append([message("T", 0, keys=f"key{number}") for number in range(15)])
    store.close()
    return disk


def _forget_ours(disk: SimDisk) -> None:
    for path in disk.files():
        if path.startswith(OURS):
            disk.unlink(path)


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_folder_says_by_its_files_with_which_sizes_it_was_made(is_ours: bool) -> None:
    disk = _folder(segment_bytes=32768, queue_file_entries=30, index_slots=25, index_entries=100)
    if not is_ours:
        _forget_ours(disk)
    for wanted in (small(ROOT), StoreSettings(ROOT), small(ROOT, index_slots=30, index_entries=99)):
        found = sizes.of_folder(disk, wanted)
        assert found.sizes == (32768, 30, 25, 100), "two of the settings make index files of the same size"
    store = opened(found, disk=disk)
    assert store.queue_range("T", 0) == (0, 15) and store.report.rebuilt == []
    store.close()


def test_an_empty_folder_gets_the_sizes_of_the_settings() -> None:
    assert sizes.of_folder(SimDisk(), small(ROOT)) == small(ROOT)


def test_an_index_of_unknown_proportions_is_refused_with_the_keys_to_set() -> None:
    disk = _folder(index_slots=7, index_entries=50)
    assert sizes.of_folder(disk, small(ROOT)).sizes[2:] == (7, 50), "our recovery point knows"
    _forget_ours(disk)
    with pytest.raises(StoreError, match=r"set store.index_slots and store.index_entries"):
        sizes.of_folder(disk, small(ROOT))
    assert sizes.of_folder(disk, small(ROOT, index_slots=7, index_entries=50)).sizes[2:] == (7, 50)


def test_an_empty_first_file_says_nothing() -> None:
    disk = SimDisk()
    for folder in (filenames.commit_log(ROOT), filenames.queue(ROOT, "T", 0)):
        disk.make_folders(folder)
        disk.open(filenames.by_offset(folder, 0), create=True).close()
    disk.make_folders(filenames.index(ROOT))
    disk.open(f"{filenames.index(ROOT)}/20261121093000123", create=True).close()
    assert sizes.of_folder(disk, small(ROOT)) == small(ROOT)


@pytest.mark.parametrize("kept", [0, 4, 40, 100])
@pytest.mark.parametrize("kind", ["consumequeue/T/0/", "index/"])
def test_in_a_folder_of_ours_a_file_that_is_too_short_is_built_again_and_says_nothing_of_sizes(
    kind: str, kept: int
) -> None:
    disk = _folder(queue_file_entries=30)
    (path,) = [path for path in disk.files() if path.startswith(f"{ROOT}/{kind}")]
    beginning = disk.files()[path][:kept]
    disk.unlink(path)
    file = disk.open(path, create=True)
    file.pwrite(beginning, 0)
    file.close()
    store = opened(sizes.of_folder(disk, small(ROOT)), disk=disk)
    assert store.report.rebuilt and store.queue_range("T", 0) == (0, 15)
    assert len(query(store.reader, "T", "key7", 9, 0, 1 << 60)) == 1
    store.close()
