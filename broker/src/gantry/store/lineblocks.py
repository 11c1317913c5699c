"""The texts of a large table's entries, kept between saves, so that a save costs what changed and not what there is.

Entries stand in blocks of a few, in the order in which they came; each block has its text.  A save encodes the blocks
of changed entries, one in each step, and hands over a list of all texts, which the housekeeper joins as it writes them.
A text takes some 40 bytes for each entry of a queue or two, and the place of an entry some 90.

A table that has tables in it has blocks for each of these parts.  There may be as many parts as entries, so a part of
one block is kept as one text, with what stands around it.

One block is special: it is encoded before all others, in the same step in which the last changes are taken up.  So what
it says is never newer than what the others say.  An owner chooses what stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from gantry.store.statefile import Encoded, Lines, line

_BLOCK_KEYS = 16
# Changed keys that are taken up between two looks at the clock, some 0.2 ms.
_TAKEN_AT_ONCE = 500

_Key = TypeVar("_Key", bound=Hashable)


class _Place(NamedTuple):
    """A block: the part of the table that it belongs to, and its number there; 0 is the block that comes first."""

    part: str
    number: int


_FIRST = _Place("", 0)


class LineBlocks(Generic[_Key]):
    """Texts of entries in blocks.  Loop thread only.

    changed    the keys of entries that came, changed or went since they were encoded; the owner adds to it
    """

    def __init__(
        self,
        value_of: Callable[[_Key], object],
        text_of: Callable[[_Key, object], str] = line,
        part_of: Callable[[_Key], str] = lambda key: "",
        is_first: Callable[[_Key], bool] = lambda key: False,
        around: Callable[[str], tuple[str, str]] = lambda part: ("", ""),
    ) -> None:
        """value_of: returns what an entry's text says, None when there is no such entry (any more).

        around: returns what stands before and behind the entries of a part.
        """
        self.changed: set[_Key] = set()
        self._value_of = value_of
        self._text_of = text_of
        self._part_of = part_of
        self._is_first = is_first
        self._around = around
        self._taking: set[_Key] = set()
        self._place: dict[_Key, _Place] = {}
        self._blocks: dict[_Place, dict[_Key, None]] = {}
        self._texts: dict[str, dict[_Place, str]] = {}
        self._stale: dict[_Place, None] = {}
        self._newest: dict[str, _Place] = {}
        self._small: dict[str, str] = {}  # parts of one block
        self._large: dict[str, None] = {}

    def fill(self, keys: Iterable[_Key]) -> None:
        """Enter the keys of a table that was loaded, in their order; only at a start, before anything else."""
        for key in keys:
            self._enter(key)

    def encode(self) -> Iterator[None]:
        """Encode what has changed, in steps of less than a millisecond; then `lines` are those of the table."""
        while True:
            self._taking = self._taking | self.changed if self._taking else self.changed  # another save left some
            self.changed = set()
            while len(self._taking) > _TAKEN_AT_ONCE:
                self._take_up(_TAKEN_AT_ONCE)
                yield
            if len(self.changed) > _TAKEN_AT_ONCE:
                continue
            # From here to the first block nobody else has the loop.
            self._take_up(len(self._taking))
            self._taking, self.changed = self.changed, set()
            self._take_up(len(self._taking))
            if _FIRST in self._stale:
                self._write(_FIRST)
            while (place := next((one for one in self._stale if one != _FIRST), None)) is not None:
                self._write(place)
                yield
            # Another save may be about to take changes up: those of the first block alone would be too new.
            if not self._stale and not self._taking:
                return

    def lines(self, part: str = "") -> Lines:
        """Return the texts of the entries of a part, as they were encoded last."""
        return Lines(self._texts.get(part, {}).values())

    def members(self) -> Encoded:
        """Return all parts as members of one object, as they were encoded last."""
        texts = [*self._small.values()]
        found = Encoded([Lines(texts)]) if texts else Encoded()
        for part in self._large:
            before, behind = self._around(part)
            found += [(",\n  " if found else "") + before, self.lines(part), behind]
        return Encoded(["{\n  ", *found, "\n }"]) if found else Encoded(["{}"])

    def _take_up(self, count: int) -> None:
        for _ in range(count):
            key = self._taking.pop()
            place = self._place.get(key)
            if place is None:
                self._enter(key)
            else:
                self._stale[place] = None

    def _enter(self, key: _Key) -> None:
        place = self._place[key] = _FIRST if self._is_first(key) else self._room(self._part_of(key))
        self._blocks.setdefault(place, {})[key] = None
        self._stale[place] = None

    def _room(self, part: str) -> _Place:
        newest = self._newest.get(part)
        if newest is None or len(self._blocks.get(newest, ())) >= _BLOCK_KEYS:
            newest = self._newest[part] = _Place(part, 1 if newest is None else newest.number + 1)
        return newest

    def _write(self, place: _Place) -> None:
        del self._stale[place]
        block, lines = self._blocks[place], []
        for key in list(block):
            value = self._value_of(key)
            if value is None:
                del block[key], self._place[key]
            else:
                lines.append(self._text_of(key, value))
        texts = self._texts.setdefault(place.part, {})
        if lines:
            texts[place] = ",\n  ".join(lines)
        else:
            texts.pop(place, None)
            del self._blocks[place]
        self._note_size(place.part, texts)

    def _note_size(self, part: str, texts: dict[_Place, str]) -> None:
        """Keep a small part as one text, and forget one without entries."""
        self._small.pop(part, None)
        self._large.pop(part, None)
        if len(texts) > 1:
            self._large[part] = None
        elif texts:
            before, behind = self._around(part)
            self._small[part] = before + next(iter(texts.values())) + behind
        else:
            del self._texts[part]
            if self._newest.get(part) not in self._blocks:
                self._newest.pop(part, None)  # names that never come again are not kept
