from __future__ import annotations

from pathlib import Path

import pytest

from gantry.store import queuebase
from gantry.store.disk import RealDisk
from gantry.store.queuebase import QueueBase, QueueEnds

BASE = QueueBase(1234, {"a": {0: (0, 7), 3: (8, 9)}, "%RETRY%g": {0: (0, 1)}}, {"gone": 99})


def _saved(tmp_path: Path) -> Path:
    (tmp_path / "gantry").mkdir()
    queuebase.save(RealDisk(), str(tmp_path), BASE)
    return tmp_path / "gantry" / "queues.json"


def test_the_table_comes_back(tmp_path: Path) -> None:
    _saved(tmp_path)
    found = queuebase.load(RealDisk(), str(tmp_path))
    assert found == BASE
    assert sorted(found.queues()) == [
        QueueEnds("%RETRY%g", 0, 0, 1),
        QueueEnds("a", 0, 0, 7),
        QueueEnds("a", 3, 8, 9),
    ]
    assert found.first("a", 3) == 8 and found.first("a", 4) == found.first("b", 0) == 0


@pytest.mark.parametrize("damage", ["", "{", '{"queues": []}', '{"queues": {"a": {"0": 5}}}', '{"logOffset": "x"}'])
def test_without_a_table_queues_are_as_their_files_say(tmp_path: Path, damage: str) -> None:
    _saved(tmp_path).write_text(damage)
    assert queuebase.load(RealDisk(), str(tmp_path)) == QueueBase(0, {}, {})
