"""A table's file: when it is written, and what a start gets of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from gantry.errors import StoreError
from gantry.metadata.tablefile import TableFile
from testkit.memory_state import MemoryState


class Table:
    """A number, saved."""

    def __init__(self, state: MemoryState) -> None:
        self.number = 0
        self.file = TableFile(state, "number.json", lambda: {"number": self.number})
        self.file.load(self._read)

    def _read(self, document: Mapping[str, object]) -> None:
        self.change(int(str(document["number"])))

    def change(self, number: int) -> None:
        """Set it."""
        self.number = number
        self.file.is_changed = True


class Failing(MemoryState):
    """Counts attempts to save again what could not be saved."""

    retries = 0

    def retry(self) -> None:
        """Count it."""
        self.retries += 1


def test_a_table_is_saved_once_a_change() -> None:
    state = MemoryState()
    table = Table(state)
    table.file.save_if_changed()
    assert state.load() is None
    table.change(7)
    table.file.save_if_changed()
    table.file.save_if_changed()
    assert (state.load(), state.saves) == ({"number": 7}, 1)


def test_what_could_not_be_saved_is_tried_again_when_nothing_changed() -> None:
    state = Failing()
    table = Table(state)
    table.change(7)
    table.file.save_if_changed()
    assert state.retries == 0
    table.file.save_if_changed()
    assert state.retries == 1


def test_a_table_that_was_saved_at_once_is_not_saved_again() -> None:
    state = MemoryState()
    table = Table(state)
    table.change(7)
    table.file.save_now()
    table.file.save_if_changed()
    assert (state.load(), state.saves) == ({"number": 7}, 1)


def test_a_change_while_a_document_is_made_in_slices_stays_one() -> None:
    table = Table(MemoryState())
    table.change(7)
    table.file.save({"number": 6})
    assert table.file.is_changed


def test_a_save_in_slices_counts_when_its_document_was_handed_over() -> None:
    state = MemoryState()
    table = Table(state)
    table.change(7)
    assert list(table.file.save_in_slices(iter([None, None]), lambda: {"number": 7})) == [None, None]
    assert (state.load(), table.file.is_changed) == ({"number": 7}, False)
    table.change(8)
    list(table.file.save_in_slices(iter([None]), lambda: None))
    assert (state.load(), table.file.is_changed) == ({"number": 7}, True)


def test_a_save_in_slices_that_ends_between_two_leaves_the_table_changed() -> None:
    def failing() -> Iterator[None]:
        yield
        raise StoreError("no room")

    state = MemoryState()
    table = Table(state)
    table.change(7)
    closed = table.file.save_in_slices(iter([None, None]), lambda: {"number": 7})
    next(closed)
    closed.close()
    assert table.file.is_changed and state.load() is None
    with pytest.raises(StoreError, match="no room"):
        list(table.file.save_in_slices(failing(), lambda: {"number": 7}))
    assert table.file.is_changed and state.load() is None


def test_the_last_save_has_what_a_save_in_slices_has_begun_with() -> None:
    state = MemoryState()
    table = Table(state)
    table.change(7)
    under_way = table.file.save_in_slices(iter([None, None]), lambda: {"number": 7})
    next(under_way)
    table.file.finish()
    assert state.load() == {"number": 7}
    list(under_way)
    table.file.finish()
    assert state.saves == 2, "nothing changed since"


def test_what_was_loaded_is_no_change() -> None:
    table = Table(MemoryState({"number": 7}))
    assert (table.number, table.file.is_changed) == (7, False)


@pytest.mark.parametrize("document", [[7], {"number": "seven"}])
def test_a_document_that_cannot_be_read_is_named(document: object) -> None:
    with pytest.raises(StoreError, match=r"^number\.json: "):
        Table(MemoryState(document))
