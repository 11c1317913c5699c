"""The file of a metadata table: one JSON document that is loaded once and saved whole.

`gantry.store.statefile.JsonState` implements it; tests have their own.  Only the table reads or writes
its document while the broker runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class State(Protocol):
    """A JSON document that survives the process."""

    def load(self) -> Mapping[str, object] | None:
        """The document as it was last saved, or None when there is none."""
        ...

    def save(self, table: Mapping[str, object]) -> None:
        """Have the document replaced soon; a reader finds the old one or the new one, never a part of either."""
        ...

    def retry(self) -> None:
        """Save again what could not be saved."""
        ...

    def save_now(self, table: Mapping[str, object]) -> None:
        """Replace the document before returning."""
        ...
