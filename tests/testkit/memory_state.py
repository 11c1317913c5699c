"""A JSON document that lives in memory; implements `gantry.metadata.state.State`."""

from __future__ import annotations

import json


class MemoryState:
    """Keeps what was saved as text, so that a table cannot change it afterwards."""

    def __init__(self, document: object | None = None) -> None:
        self._text = None if document is None else json.dumps(document)
        self.saves = 0

    def load(self) -> object | None:
        """The document as it was last saved."""
        return None if self._text is None else json.loads(self._text)

    def save(self, value: object) -> None:
        """Replace the document."""
        self._text = json.dumps(value)
        self.saves += 1
