"""The file of a metadata table: read once at the start, and saved whole when something changed since.

A table owns one `TableFile`, sets `is_changed` with every change, and gives the function that makes its document.  The
broker saves on a period, after an administrator's request, and when it stops.  One owner, the event loop.

A large table is saved in slices (`save_in_slices`), and the broker may stop between two of them.  So changes count as
saved only when the document was handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping

from gantry.errors import StoreError
from gantry.metadata.state import State
from gantry.model import documents


class TableFile:
    """One table's file.

    is_changed  whether the table differs from what was saved last, or what a save in slices is going to have
    saves       how many documents were saved or handed over; a table that makes its document in slices compares it
    """

    def __init__(self, state: State, name: str, to_document: Callable[[], Mapping[str, object]]) -> None:
        self._state = state
        self._name = name
        self._to_document = to_document
        self.is_changed = False
        self.saves = 0
        self._under_way = 0  # saves in slices

    def load(self, read: Callable[[documents.Document], None]) -> None:
        """Give the saved document, if there is one, to `read`; StoreError, with the file's name, for its ValueError."""
        document = self._state.load()
        if document is None:
            return
        try:
            read(documents.document(document, "the document"))
        except ValueError as error:
            raise StoreError(f"{self._name}: {error}") from error
        self.is_changed = False

    def save_if_changed(self) -> None:
        """Hand the document to the disk when something changed since the last time, or could not be saved then."""
        if self.is_changed:
            self.save(self._take_table())
        else:
            self._state.retry()

    def save_in_slices(
        self, slices: Iterator[None], to_document: Callable[[], Mapping[str, object] | None]
    ) -> Generator[None, None, bool]:
        """Go through the slices, then hand this document to the disk, None: none.  Return whether it was handed over.

        Otherwise, also when this is closed or fails between two slices, the table stays changed.
        """
        self.is_changed = is_saved = False
        self._under_way += 1
        try:
            yield from slices
            document = to_document()
            if document is not None:
                self.save(document)
                is_saved = True
        finally:
            self._under_way -= 1
            self.is_changed = self.is_changed or not is_saved
        return is_saved

    def finish(self) -> None:
        """Hand over what changed, also what a save in slices has begun with: that may not be resumed any more."""
        self.is_changed = self.is_changed or self._under_way > 0
        self.save_if_changed()

    def save(self, document: Mapping[str, object]) -> None:
        """Hand this document to the disk; what changed while it was made stays changed."""
        self.saves += 1
        self._state.save(document)

    def save_now(self) -> None:
        """Put the document on the disk before returning; StoreError when that fails."""
        self.saves += 1
        self._state.save_now(self._take_table())

    def _take_table(self) -> Mapping[str, object]:
        document = self._to_document()
        self.is_changed = False
        return document
