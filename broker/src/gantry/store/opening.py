"""How a store comes to be: recovery in slices, so that health questions are answered meanwhile.

opening = Opening(settings, disk, clock, background)
for progress in opening.steps():
    await asyncio.sleep(0)
store = opening.store
"""

from __future__ import annotations

from collections.abc import Iterator

from gantry.clock import Clock
from gantry.store.background import Background
from gantry.store.disk import Disk
from gantry.store.recovery import Progress, Recovery, RecoveryReport
from gantry.store.settings import StoreSettings
from gantry.store.store import Store


class Opening:
    """A store on its way: go through steps(), then take `store`."""

    def __init__(self, settings: StoreSettings, disk: Disk, clock: Clock, background: Background) -> None:
        self._recovery = Recovery(settings, disk, clock, background)
        self.report: RecoveryReport = self._recovery.report
        self.store: Store | None = None

    def steps(self) -> Iterator[Progress]:
        """Recovery in slices of some milliseconds; StoreError when the folder cannot be opened."""
        try:
            yield from self._recovery.steps()
        finally:
            self._recovery.close()
        assert self._recovery.parts is not None
        self.store = Store(self._recovery.parts)


def open_store(settings: StoreSettings, disk: Disk, clock: Clock, background: Background) -> Store:
    """Open at one go: commands and tests."""
    opening = Opening(settings, disk, clock, background)
    for _ in opening.steps():
        pass
    assert opening.store is not None
    return opening.store
