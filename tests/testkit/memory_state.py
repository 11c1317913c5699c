"""A JSON document that lives in memory; implements `gantry.metadata.state.State`."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gantry.metadata.savedtogether import SavedTogether
from gantry.store.statefile import to_bytes


class MemoryState:
    """Keeps what was saved as text, so that a table cannot change it afterwards."""

    def __init__(self, document: object | None = None) -> None:
        self._text = None if document is None else json.dumps(document)
        self.saves = 0

    def load(self) -> dict[str, object] | None:
        """The document as it was last saved."""
        loaded: dict[str, object] | None = None if self._text is None else json.loads(self._text)
        return loaded

    def save(self, table: Mapping[str, object]) -> None:
        """Replace the document."""
        self._text = to_bytes(table).decode()
        self.saves += 1

    def retry(self) -> None:
        """Nothing ever fails here."""

    def save_now(self, table: Mapping[str, object]) -> None:
        """The same: there is no later."""
        self.save(table)


class SavedAtOnce(SavedTogether):
    """The saves of a table whose changes are durable at once."""

    def __init__(self) -> None:
        super().__init__(lambda: 0, self._nothing)

    async def _nothing(self) -> bool:
        return True

    def has(self, number: int) -> bool:
        return True
