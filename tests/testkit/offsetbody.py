"""The document of the offsets in one piece, as a start reads it."""

from __future__ import annotations

from gantry.metadata.offsets import Offsets


def body_of(offsets: Offsets) -> dict[str, object]:
    """Return the whole document."""
    return {**offsets.head(), **{name: dict(entries) for name, entries in offsets.tables().items()}}
