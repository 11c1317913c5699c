"""A run that is called scanned is held to it: a play's store compares each one with a walk over the log."""

from __future__ import annotations

from collections.abc import Sequence

from gantry.leaves import frames, records
from gantry.store.store import Store


def hold_to_it(store: Store) -> None:
    """From now on an append that says `is_scanned` is checked: a walk finds the same keys and tag codes."""
    real = store.append

    def append(
        sends: Sequence[frames.Send], together: bool = False, is_scanned: bool = False, is_owed: bool = False
    ) -> int:
        end = real(sends, together, is_scanned, is_owed)
        for send in sends if is_scanned else ():
            view = store.reader._log.slice(send.log_offset, send.size)
            (entry,), _, _ = records.walk(view, 0, len(view), send.log_offset, True)
            found = entry.unique_key, entry.keys, entry.tags_code, entry.properties
            said = send.unique_key, send.keys, send.tags_code, send.properties
            assert found == said, f"{send} says {said}, the log {found}"
        return end

    store.append = append  # type: ignore[method-assign]
