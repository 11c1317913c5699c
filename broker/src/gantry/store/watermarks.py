"""How far the log has come.

    written    >=  flushed        this machine's disk has it
    written    >=  confirmed      every in-sync member has it, this one included
    confirmed  >=  dispatched     queues and index know it

A mark is a log offset on a record boundary: all bytes below it have the property.  No mark ever
moves back while its store is open; truncation happens in a closed store.

Everything that waits in a broker waits for a mark.  A producer's reply waits for confirmed, and so
does the dispatcher; a held pull waits for dispatched, a slave's link for written.
"""

from __future__ import annotations

from collections.abc import Callable

Listener = Callable[[int], None]


class Watermark:
    """One mark and its listeners.

    Only the event loop's thread may call advance(); the flush thread reports to the loop.  A listener
    may cause a further advance of the same mark: later listeners then hear the higher offset first and
    the lower one after it, so a listener compares with what it has already seen.
    """

    __slots__ = ("_ceiling", "_listeners", "offset")

    def __init__(self, offset: int, ceiling: Watermark | None = None) -> None:
        assert ceiling is None or offset <= ceiling.offset
        self.offset: int = offset
        self._ceiling = ceiling
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Register a listener that is called with the offset after every advance, in the order of registration."""
        self._listeners = [*self._listeners, listener]

    def ignore(self, listener: Listener) -> None:
        """Call a listener no more."""
        self._listeners = [one for one in self._listeners if one != listener]

    def advance(self, offset: int) -> None:
        """Move the mark up and call the listeners; offsets at or below the current mark are ignored."""
        if offset <= self.offset:
            return
        assert self._ceiling is None or offset <= self._ceiling.offset
        self.offset = offset
        for listener in self._listeners:
            listener(offset)
