"""Tells a slave's link when the changes of metadata that it brought are saved.

Those that come during a wait share the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gantry.replication.link import SlaveLink


class SavedChanges:
    """Loop thread only.

    are_saved   waits until every change up to now is saved; returns False when it gave up
    tell        called with the link, and the number up to which its changes are saved
    """

    def __init__(self, are_saved: Callable[[], Awaitable[bool]], tell: Callable[[SlaveLink | None, int], None]) -> None:
        self._are_saved = are_saved
        self._tell = tell
        self._newest: tuple[SlaveLink | None, int] = (None, 0)
        self._task: asyncio.Task[None] | None = None

    def note(self, link: SlaveLink | None, number: int) -> None:
        """Note that changes up to this number came over this link and were applied."""
        self._newest = link, number
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._wait())

    async def stop(self) -> None:
        """Wait for nothing any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _wait(self) -> None:
        while True:
            newest = self._newest
            if await self._are_saved():
                self._tell(*newest)
                if self._newest == newest:
                    return
