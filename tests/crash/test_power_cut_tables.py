"""The broker's JSON tables under power cuts: a start finds a whole table, none older than the last that was saved."""

from __future__ import annotations

import random

from gantry.errors import StoreError, SyncFailedError
from gantry.store.background import InlineBackground
from gantry.store.statefile import JsonState
from testkit.simdisk import Faults, PowerCut, SimDisk

_PATH = "/store/config/topics.json"
_VERSIONS = 5
_DICE = 12


def _state(disk: SimDisk) -> JsonState:
    return JsonState(_PATH, disk, InlineBackground().housekeeper)


def _save_some(disk: SimDisk) -> int:
    """Save version after version until the power goes or a sync fails; the last that was saved for certain."""
    saved = 0
    try:
        for version in range(1, _VERSIONS + 1):
            state = _state(disk)
            state.save({"version": version, "ballast": "x" * 9000})
            if state.error is None:
                saved = version
            if isinstance(state.error, SyncFailedError):
                break  # final: the process ends
    except PowerCut:
        pass
    return saved


def _version(disk: SimDisk) -> int:
    table = _state(disk).load()
    version = table["version"] if table is not None else 0
    assert isinstance(version, int)
    return version


def test_a_power_cut_at_any_operation_leaves_the_last_saved_table_or_the_next() -> None:
    at, saved = 0, 0
    while saved < _VERSIONS:
        at += 1
        disk = SimDisk()
        disk.faults = Faults(power_cut_at=at)
        saved = _save_some(disk)
        for seed in range(_DICE):
            found = _version(disk.crash(random.Random(seed)))
            assert saved <= found <= saved + 1, f"cut at {at}, dice {seed}: {found} found, {saved} was saved"


def test_a_table_that_could_not_be_saved_leaves_the_one_before_it() -> None:
    at, fired = 0, True
    while fired:
        at += 1
        disk = SimDisk()
        disk.faults = faults = Faults(fail_at=at)
        saved = _save_some(disk)
        fired = faults.fired
        for seed in range(_DICE):
            found = _version(disk.crash(random.Random(seed)))
            assert saved <= found, f"operation {at} failed, dice {seed}: {found} found, {saved} was saved"


def test_a_damaged_table_is_read_from_its_backup() -> None:
    disk = SimDisk()
    _save_some(disk)
    disk.damage(_PATH, 0, b"}")
    assert _version(disk) == _VERSIONS - 1


def test_a_table_damaged_together_with_its_backup_is_an_error_that_names_it() -> None:
    disk = SimDisk()
    _save_some(disk)
    for path in (_PATH, f"{_PATH}.bak"):
        disk.damage(path, 0, b"}")
    try:
        _version(disk)
    except StoreError as error:
        assert _PATH in str(error)
    else:
        raise AssertionError("nobody noticed")
