"""A slave over passes of the journal that rest between two batches, while everything changes.

What a slave has when it holds a number is checked against all changes up to that number: an answer waits for no more.
"""

from __future__ import annotations

import random

import pytest

from gantry.metadata import journal as journals
from gantry.metadata.journal import ALL, GRAVE, GROUP, LOG_START, OFFSET, TOPIC, Journal

_TABLES = (GRAVE, TOPIC, GROUP, OFFSET)
_ENDED = "ended"  # it never goes before other offsets

Version = tuple[int, int]
"""The number of the change among all, and the generation of the topic."""


class _Master:
    """Tables with a journal, and which change was the newest of each entry at each number."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.tables: dict[str, dict[str, Version]] = {table: {} for table in _TABLES}
        self.journal = Journal()
        for name, table in self.tables.items():
            self.journal.carry(name, list(table), table.get)
        self.journal.keep_behind(OFFSET, _ENDED)
        self.noted: list[tuple[int, str, str, Version | None]] = []
        self._generation = 0

    def change(self) -> None:
        table = self.chance.choice((TOPIC, TOPIC, GROUP, OFFSET, GRAVE))
        key = f"k{self.chance.randrange(self.chance.choice((3, 30)))}"
        if table != GRAVE:
            self._note(table, key, is_deleted=table != TOPIC and self.chance.random() < 0.3)
        elif key in self.tables[TOPIC]:
            self._generation += 1
            self._note(GRAVE, key)
            self._note(TOPIC, key, is_deleted=True)
        if table == OFFSET:
            self._note(OFFSET, _ENDED)

    def _note(self, table: str, key: str, is_deleted: bool = False) -> None:
        generation = self._generation if table == GRAVE else self.tables[GRAVE].get(key, (0, 0))[1]
        value = None if is_deleted else (len(self.noted) + 1, generation)
        if value is None:
            self.tables[table].pop(key, None)
        else:
            self.tables[table][key] = value
        self.journal.changed(table, key)
        self.noted.append((self.journal.number, table, key, value))


class _Slave:
    """Applies batches as a slave does."""

    def __init__(self, master: _Master) -> None:
        self.number = 0
        self.tables: dict[str, dict[str, Version]] = {table: {} for table in _TABLES}
        self._master = master

    def apply(self, number: int, changes: list[object]) -> None:
        assert self.number < number <= self._master.journal.number, "it would be skipped, or is not true"
        self.number = number
        for table, key, value in changes:  # type: ignore[misc]
            if table == ALL:
                for name, names in value.items():
                    if name != LOG_START:
                        kept = {one: self.tables[name][one] for one in self.tables[name].keys() & set(names)}
                        self.tables[name] = kept
            elif value is None:
                self.tables[table].pop(key, None)
            else:
                buried = self.tables[GRAVE].get(key, (0, 0))[1]
                assert table != TOPIC or buried >= value[1], "a topic that was made again goes before its deletion"
                self.tables[table][key] = value
        self._check()

    def _check(self) -> None:
        newest: dict[tuple[str, str], tuple[int, bool]] = {}
        for order, (number, table, key, value) in enumerate(self._master.noted, 1):
            if number <= self.number and key != _ENDED:
                newest[table, key] = order, value is None
        for (table, key), (order, is_deleted) in newest.items():
            mine = self.tables[table].get(key)
            if mine is None:
                later = self._master.noted[order:]
                was_deleted = is_deleted or any(one[1:] == (table, key, None) for one in later)
                assert was_deleted, f"{table} {key} is not there"
            else:
                assert mine[0] >= order, f"{table} {key} is older than the number {self.number}"


@pytest.mark.parametrize("first_seed", range(0, 200, 50))
def test_a_slave_has_all_changes_up_to_each_number_however_passes_and_changes_meet(
    first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "_GONE_MAX", 3)
    monkeypatch.setattr(journals, "_BATCH", 4)
    for seed in range(first_seed, first_seed + 50):
        chance = random.Random(seed)
        master = _Master(chance)
        slave = _Slave(master)
        for _ in range(chance.randrange(1, 6)):
            for _ in range(chance.choice((0, 2, 20, 40))):
                master.change()
            for number, changes in master.journal.after(slave.number):
                slave.apply(number, changes)
                for _ in range(chance.choice((0, 0, 1, 3, 12))):
                    master.change()
        for _ in range(2):  # what is kept behind comes with the second
            for number, changes in master.journal.after(slave.number):
                slave.apply(number, changes)
        assert slave.tables == master.tables, seed
