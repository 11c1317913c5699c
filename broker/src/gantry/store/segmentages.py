"""How long ago each segment was written last, whatever happens to the wall clock while the process lives.

The disk keeps a moment of the wall clock.  When a segment is seen first, its age is what that moment says now, leaps
forwards of this process left out.  From then on it grows with the monotonic clock.  Every segment is seen some seconds
after its last message, so a clock that is set later makes none older or younger.  A start takes the disk's moments
again: after a start with the clock set back, segments count as younger, and are kept longer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from gantry.clock import SteadyClock


class _Seen(NamedTuple):
    modified_ms: int
    age_ms: int  # at that time
    at_s: float


class SegmentAges:
    """The ages of segments that are complete, by path.  Loop thread only."""

    def __init__(self, clock: SteadyClock) -> None:
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    def unseen(self, paths: Iterable[str]) -> list[str]:
        """Return which of these were not seen yet."""
        return [path for path in paths if path not in self._seen]

    def note(self, modified_ms: Mapping[str, int], wall_ms: int) -> None:
        """Take in when files were written last, by the disk; one that has changed since counts as new."""
        now_s = self._clock.monotonic()
        for path, at_ms in modified_ms.items():
            known = self._seen.get(path)
            if known is None or known.modified_ms != at_ms:
                self._seen[path] = _Seen(at_ms, self._clock.passed_ms(at_ms, wall_ms), now_s)

    def keep(self, paths: Collection[str]) -> None:
        """Forget all others: they are gone."""
        if len(self._seen) > len(paths):
            there = set(paths)
            self._seen = {path: one for path, one in self._seen.items() if path in there}

    def written_ms(self, path: str, wall_ms: int) -> int:
        """Return when a file that was seen was written, as the wall clock shows it now."""
        seen = self._seen[path]
        return wall_ms - seen.age_ms - round((self._clock.monotonic() - seen.at_s) * 1000)
