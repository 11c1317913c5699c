"""Where a metadata table keeps itself: one JSON document that is loaded once and saved whole.

`gantry.store.statefile.JsonState` is the one that is used; a test gives its own.  A table is the owner of
its document: nobody else reads or writes it while the broker runs.
"""

from __future__ import annotations

from typing import Protocol


class State(Protocol):
    """A JSON document that survives the process."""

    def load(self) -> object | None:
        """The document as it was last saved, or None when there is none."""
        ...

    def save(self, value: object) -> None:
        """Replace the document; a reader finds the old one or the new one, never a part of either."""
        ...
