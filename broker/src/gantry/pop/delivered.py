"""Reading back the records that were delivered to the revive topic, a run at a time.

Of most of them only the name of their lease is needed: their messages were acknowledged.  So the leaf reads just that.
"""

from __future__ import annotations

from collections.abc import Sequence

from gantry.leaves import leases
from gantry.leaves.leases import Key
from gantry.store.reading import Reader


def leases_of(reader: Reader, found: Sequence[tuple[int, int, int]]) -> list[tuple[Key, bool] | None]:
    """Return whose lease each record at these places is, and whether it is the lease itself; see `leases.named`."""
    named: list[tuple[Key, bool] | None] = []
    while len(named) < len(found):
        rest = found[len(named) :]
        memory, base, end = reader.stretch(rest[0][0])
        count = next((number for number, one in enumerate(rest) if not base <= one[0] < end), len(rest))
        named += leases.named(memory, base, end, rest[:count]) if count else [None]
    return named
