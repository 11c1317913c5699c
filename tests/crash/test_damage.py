"""Files that somebody or something damaged while the store was not running.

What is derived (queues, index, checkpoint, recovery file) is built again from the log, so nothing may be lost with it.
The log itself is the truth: where it was durable, damage is told, with the file and the place, and nothing is cut;
behind that it is the tail of a crash, and is cut.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from gantry.errors import CorruptRecordError, StoreError
from testkit.keyed import query
from testkit.ledger import LogLedger
from testkit.simdisk import SimDisk
from testkit.storeplay import ROOT, StorePlay, inspect, lives_on, perform, random_steps, read_log, revived

_SEGMENTS = f"{ROOT}/commitlog/"
_QUEUES = f"{ROOT}/consumequeue/"
_INDEX = f"{ROOT}/index/"


def _lived(stop: str) -> StorePlay:
    """A store after a life long enough to have several files of each kind, that stopped in order or died."""
    play = StorePlay(SimDisk(), LogLedger())
    perform(play, random_steps(random.Random(7), 40))
    play.tick()
    if stop == "in order":
        play.close()
    else:
        play.ledger.all_written()
    return revived(play, play.disk.restart(), play.ledger)


def _paths(play: StorePlay, prefix: str) -> list[str]:
    return [path for path in play.disk.files() if path.startswith(prefix)]


def _zero(disk: SimDisk, path: str) -> None:
    disk.damage(path, 0, bytes(len(disk.read(path))))


def _garbage(disk: SimDisk, path: str) -> None:
    disk.damage(path, 0, random.Random(1).randbytes(len(disk.read(path))))


def _remove(disk: SimDisk, path: str) -> None:
    disk.unlink(path)
    disk.sync_folder(path.rsplit("/", 1)[0])


def _halve(disk: SimDisk, path: str) -> None:
    disk.shorten(path, len(disk.read(path)) // 2)


@pytest.mark.parametrize("stop", ["in order", "by kill"])
@pytest.mark.parametrize("damage", [_zero, _garbage, _remove, _halve])
@pytest.mark.parametrize("prefix", [_QUEUES, f"{ROOT}/gantry/recovery", f"{ROOT}/checkpoint", f"{ROOT}/gantry/queues"])
def test_what_is_derived_is_built_again_from_the_log(
    prefix: str, damage: Callable[[SimDisk, str], None], stop: str
) -> None:
    for number in range(len(_paths(_lived(stop), prefix))):
        play = _lived(stop)
        path = _paths(play, prefix)[number]
        damage(play.disk, path)
        try:
            lives_on(play, random.Random(1))
        except BaseException as error:
            error.add_note(f"{damage.__name__} {path}")
            raise


@pytest.mark.parametrize("stop", ["in order", "by kill"])
@pytest.mark.parametrize("prefix", [_QUEUES, _INDEX, f"{ROOT}/gantry/", f"{ROOT}/checkpoint"])
def test_all_files_of_a_kind_may_be_gone(prefix: str, stop: str) -> None:
    play = _lived(stop)
    for path in _paths(play, prefix):
        _remove(play.disk, path)
    lives_on(play, random.Random(1))


@pytest.mark.parametrize("stop", ["in order", "by kill"])
@pytest.mark.parametrize("damage", [_zero, _halve])
def test_an_index_file_that_is_obviously_damaged_is_built_again(
    damage: Callable[[SimDisk, str], None], stop: str
) -> None:
    for number in range(len(_paths(_lived(stop), _INDEX))):
        play = _lived(stop)
        path = _paths(play, _INDEX)[number]
        damage(play.disk, path)
        try:
            lives_on(play, random.Random(1))
        except BaseException as error:
            error.add_note(f"{damage.__name__} {path}")
            raise


@pytest.mark.parametrize("seed", range(12))
def test_garbage_in_an_index_file_never_makes_a_query_fail_or_lie(seed: int) -> None:
    rng = random.Random(seed)
    play = _lived("in order")
    path = rng.choice(_paths(play, _INDEX))
    size = len(play.disk.read(path))
    for _ in range(8):
        play.disk.damage(path, rng.randrange(40, size - 4), rng.randbytes(4))
    store = play.open()
    for kept in play.ledger.known:
        for key in kept.keys.split():
            for found in query(store.reader, kept.topic, key.decode(), 64, 0, 1 << 50):
                assert key in bytes(found), "found under a key that it does not have"


@pytest.mark.parametrize("stop", ["in order", "by kill"])
def test_damage_to_the_durable_log_is_told_with_its_place_and_nothing_is_cut(stop: str) -> None:
    play = _lived(stop)
    view = read_log(play.disk, play.settings.segment_bytes)
    # The recovery file and the queues are gone, so that the start has to read the whole log.
    victim = view.entries[len(view.entries) // 2]
    path = f"{_SEGMENTS}{victim.log_offset - victim.log_offset % 8192:020d}"
    play.disk.damage(path, victim.log_offset % 8192 + 92, b"\xff\xfe")
    for derived in _paths(play, _QUEUES):
        _remove(play.disk, derived)
    before = {name: data for name, data in play.disk.files().items() if name.startswith(_SEGMENTS)}
    with pytest.raises(CorruptRecordError, match=rf"{path}.*{victim.log_offset}"):
        inspect(play)
    after = {name: data for name, data in play.disk.files().items() if name.startswith(_SEGMENTS)}
    assert after == before


def test_a_damaged_tail_behind_what_was_durable_is_cut() -> None:
    play = _lived("by kill")
    view = read_log(play.disk, play.settings.segment_bytes)
    play.open()
    for _ in range(2):
        play.append(1, 500)
    after = read_log(play.disk, play.settings.segment_bytes)
    assert len(after.entries) == len(view.entries) + 2
    last = after.entries[-1]
    path = f"{_SEGMENTS}{last.log_offset - last.log_offset % 8192:020d}"
    play.disk.damage(path, last.log_offset % 8192 + last.size // 2, b"\xff\xff")
    again = revived(play, play.disk.restart(), play.ledger)
    # The disk lied about it, so the ledger lets go of it; everything before it has to be there.
    again.ledger.safe = len(view.entries) + 1
    lives_on(again, random.Random(1))


def test_a_missing_segment_is_told_and_nothing_is_cut() -> None:
    play = _lived("in order")
    segments = _paths(play, _SEGMENTS)
    assert len(segments) > 4
    _remove(play.disk, segments[2])
    with pytest.raises(StoreError, match=segments[3]):
        inspect(play)
    assert _paths(play, _SEGMENTS) == segments[:2] + segments[3:]


def test_a_segment_of_another_size_is_told_and_nothing_is_cut() -> None:
    play = _lived("in order")
    segments = _paths(play, _SEGMENTS)
    play.disk.shorten(segments[1], 4096)
    with pytest.raises(StoreError, match=rf"{segments[1]} has 4096 bytes"):
        inspect(play)
    assert _paths(play, _SEGMENTS) == segments
