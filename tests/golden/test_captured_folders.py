"""Folders that Apache's brokers left after they deleted topics and made them again.

The recorder is interop/capture_folders.py.

`tests/interop/test_folder_sequences.py` draws such folders with the real broker; these are opened with every commit.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from gantry.model import names
from gantry.store import filenames, generations, sizes
from gantry.store.disk import RealDisk
from gantry.store.recovery import Start
from gantry.store.store import Store
from testkit.archives import unpack
from testkit.smallstore import bodies, message, opened, small

FOLDERS = Path(__file__).parent / "folders"
Found = dict[str, dict[str, list[str]]]


def living(store: Store) -> Found:
    """All bodies by topic and queue, but for topics of the broker itself."""
    found: Found = {}
    for topic, queue_id in sorted(store.queues()):
        if not names.is_system_topic(topic):
            found.setdefault(topic, {})[str(queue_id)] = [body.decode() for body in bodies(store, topic, queue_id)]
    return found


def test_both_versions_tell_every_story() -> None:
    stories = {path.stem.partition("-")[::2] for path in FOLDERS.glob("*.json")}
    told = {story for _, story in stories}
    assert len(told) >= 7 and stories == {(version, story) for version in ("4.9.7", "5.x") for story in told}


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDERS.glob("*.json")))
def test_what_apaches_broker_deleted_is_not_here_and_the_rest_is(name: str, tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    with tarfile.open(FOLDERS / f"{name}.tar.xz") as archive:
        unpack(archive, root)
    expected: Found = json.loads((FOLDERS / f"{name}.json").read_text())
    disk = RealDisk()
    settings = sizes.of_folder(disk, small(root))
    store = opened(settings, disk=disk)
    assert store.report.start is (Start.FOREIGN_CRASHED if name.endswith("killed") else Start.FOREIGN_CLEAN)
    assert living(store) == expected
    next_offset = len(expected.get("T", {}).get("0", []))
    assert store.next_queue_offset("T", 0) == next_offset
    store.append([message("T", 0, b"new")])
    expected.setdefault("T", {}).setdefault("0", []).append("new")
    assert living(store) == expected
    store.close()
    life = generations.load(disk, root).life("T")
    assert life is not None, "the deletion is on the disk"
    disk.remove_tree(filenames.consume_queues(root))
    store = opened(settings, disk=disk)
    assert living(store) == expected, "what is built again from the log has nothing from before the deletion"
    store.close()
