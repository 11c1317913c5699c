from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.errors import DiskFullError, StoreError
from gantry.store import statefile
from gantry.store.background import InlineBackground, _InlineWorker
from gantry.store.disk import RealDisk
from gantry.store.statefile import JsonState
from testkit.simdisk import SimDisk


def _state(tmp_path: Path, background: InlineBackground | None = None) -> JsonState:
    return JsonState(f"{tmp_path}/config/topics.json", RealDisk(), (background or InlineBackground()).housekeeper)


class _Threadlike(_InlineWorker):
    """Drains as a thread does: what the outcome of a job submits runs beside the caller, or after it."""

    def drain(self) -> None:
        self.step()


def test_a_table_comes_back_and_the_one_before_is_the_backup(tmp_path: Path) -> None:
    state = _state(tmp_path)
    assert state.load() is None
    state.save({"a": 1})
    state.save({"a": 2, "b": {"c": [1, "x", None]}})
    assert state.load() == {"a": 2, "b": {"c": [1, "x", None]}} and state.error is None
    assert json.loads((tmp_path / "config" / "topics.json.bak").read_text()) == {"a": 1}
    assert sorted(path.name for path in (tmp_path / "config").iterdir()) == ["topics.json", "topics.json.bak"]


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"\xff\xfe", b"null", b'{"a": 1} x'])
def test_a_damaged_file_is_replaced_by_its_backup(tmp_path: Path, damage: bytes) -> None:
    state = _state(tmp_path)
    state.save({"a": 1})
    state.save({"a": 2})
    (tmp_path / "config" / "topics.json").write_bytes(damage)
    told: list[str] = []
    worker = InlineBackground().housekeeper
    again = JsonState(f"{tmp_path}/config/topics.json", RealDisk(), worker, on_damaged=told.append)
    assert again.load() == {"a": 1}
    assert len(told) == 1 and "topics.json cannot be read" in told[0]
    (tmp_path / "config" / "topics.json.bak").write_bytes(damage)
    with pytest.raises(StoreError, match=r"topics\.json cannot be read.*restore it from a backup or remove it"):
        state.load()


def test_the_backup_alone_is_enough(tmp_path: Path) -> None:
    state = _state(tmp_path)
    state.save({"a": 1})
    state.save({"a": 2})
    (tmp_path / "config" / "topics.json").unlink()
    assert state.load() == {"a": 1}


def test_fastjsons_bare_numeric_keys_are_read() -> None:
    text = b'{"offsetTable":{"t@g":{0:12,1 : 5,-2:7},"{3:4,":{"x{9:1":1}},\n\t"n":{7:{8:9}}}'
    assert statefile.parse(text) == {
        "offsetTable": {"t@g": {"0": 12, "1": 5, "-2": 7}, "{3:4,": {"x{9:1": 1}},
        "n": {"7": {"8": 9}},
    }


def test_what_is_written_is_strict_json_also_for_numbers_as_keys(tmp_path: Path) -> None:
    state = _state(tmp_path)
    state.save({"offsets": {3: 1, 1: 2}})
    assert json.loads((tmp_path / "config" / "topics.json").read_text()) == {"offsets": {"1": 2, "3": 1}}


def test_while_one_save_is_under_way_only_the_newest_waits(tmp_path: Path) -> None:
    background = InlineBackground(at_once=False)
    state = _state(tmp_path, background)
    for number in range(5):
        state.save({"n": number})
    assert background.step()
    assert state.load() == {"n": 0}
    assert background.step() and not background.step()
    assert state.load() == {"n": 4}


def test_what_could_not_be_saved_is_told_and_tried_again_until_it_is() -> None:
    disk = SimDisk(quota_bytes=0)
    told: list[str] = []
    state = JsonState("/s/config/a.json", disk, InlineBackground().housekeeper, lambda path, _: told.append(path))
    state.save({"n": "x" * 200})
    state.retry()
    assert told == ["/s/config/a.json"] * 2 and isinstance(state.error, DiskFullError) and state.load() is None
    disk.quota_bytes = 1 << 20
    state.retry()
    state.retry()
    assert len(told) == 2 and state.error is None and state.load() == {"n": "x" * 200}


def test_saving_now_comes_after_what_was_saved_before(tmp_path: Path) -> None:
    background = InlineBackground(at_once=False)
    state = _state(tmp_path, background)
    state.save({"n": 1})
    state.save({"n": 2})
    state.save_now({"n": 3})
    background.close()
    assert state.load() == {"n": 3}


def test_a_table_that_waited_is_not_written_after_the_one_that_is_saved_now(tmp_path: Path) -> None:
    worker = _Threadlike(at_once=False)
    state = JsonState(f"{tmp_path}/config/topics.json", RealDisk(), worker)
    state.save({"n": 1})
    state.save({"n": 2})
    state.save_now({"n": 3})
    while worker.step():
        pass
    assert state.load() == {"n": 3} and state.kept == state.asked == 2


def test_a_full_disk_keeps_the_old_table_and_is_told() -> None:
    disk = SimDisk(quota_bytes=64 << 10)
    disk.make_folders("/s")
    state = JsonState("/s/config/a.json", disk, InlineBackground().housekeeper)
    state.save({"n": 1})
    disk.quota_bytes = 0
    state.save({"n": "x" * 100_000})
    assert isinstance(state.error, DiskFullError) and state.load() == {"n": 1}
    disk.quota_bytes = 1 << 20
    state.save({"n": 3})
    assert state.error is None and state.load() == {"n": 3}


def test_it_counts_what_it_was_given_and_what_is_on_the_disk() -> None:
    background, told = InlineBackground(at_once=False), []
    disk = SimDisk(quota_bytes=1 << 20)
    state = JsonState(
        "/s/topics.json", disk, background.housekeeper, on_saved=lambda: told.append((state.kept, state.asked))
    )
    state.save({"a": 1})
    state.save({"a": 2})
    assert (state.asked, state.kept) == (2, 0)
    background.step()
    assert state.kept == 1, "the second waited for the first"
    disk.quota_bytes = 0
    background.step()
    assert state.kept == 1 and isinstance(state.error, DiskFullError)
    disk.quota_bytes = 1 << 20
    state.retry()
    background.step()
    assert told == [(1, 2), (2, 2)]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), _VALUES | st.dictionaries(st.integers(), _VALUES, max_size=4), max_size=4))
def test_every_table_comes_back_with_a_line_for_each_entry(table: dict[str, object]) -> None:
    text = statefile.to_bytes(table)
    assert statefile.parse(text) == json.loads(json.dumps(table))
    inner = sum(1 + len(value) for value in table.values() if isinstance(value, dict) and value)
    assert text.count(b"\n") == max(len(table), 1) + inner + 2


def test_a_save_for_which_the_housekeeper_has_no_place_is_made_later(tmp_path: Path) -> None:
    background = InlineBackground()
    state = _state(tmp_path, background)
    submit = background.housekeeper.submit
    for again in ("save", "retry"):
        background.housekeeper.submit = lambda *_, **__: False  # type: ignore[method-assign]
        state.save({"by": again})
        background.housekeeper.submit = submit  # type: ignore[method-assign]
        if again == "save":
            state.save({"by": "a later save"})
        else:
            state.retry()
        assert state.load() == {"by": "a later save" if again == "save" else "retry"} and state.kept == state.asked
