"""Opening a store: recovery in slices, so that health requests are answered meanwhile.

opening = Opening(settings, disk, clock, background)
for progress in opening.steps():
    await asyncio.sleep(0)
store = opening.store
"""

from __future__ import annotations

from collections.abc import Iterator

from gantry.clock import Clock, SteadyClock
from gantry.store import filenames
from gantry.store.background import Background
from gantry.store.disk import Disk, FileLock
from gantry.store.recovery import Recovery, RecoveryProgress, RecoveryReport
from gantry.store.settings import StoreSettings
from gantry.store.store import Store


class Opening:
    """A store that is being opened: iterate over steps(), then use `store`."""

    def __init__(
        self, settings: StoreSettings, disk: Disk, clock: SteadyClock, background: Background, is_locked: bool = False
    ) -> None:
        """is_locked: the caller holds the folder's lock, and releases it after the store is closed."""
        self._recovery = Recovery(settings, disk, clock, background, is_locked)
        self.report: RecoveryReport = self._recovery.report
        self.store: Store | None = None

    def steps(self) -> Iterator[RecoveryProgress]:
        """Recovery in slices of some milliseconds; StoreError when the folder cannot be opened."""
        try:
            yield from self._recovery.steps()
        finally:
            self._recovery.close()
        assert self._recovery.parts is not None
        self.store = Store(self._recovery.parts)


def open_store(settings: StoreSettings, disk: Disk, clock: Clock, background: Background) -> Store:
    """Open a store without interruption, for commands and tests."""
    steady = clock if isinstance(clock, SteadyClock) else SteadyClock(clock)
    opening = Opening(settings, disk, steady, background)
    for _ in opening.steps():
        pass
    assert opening.store is not None
    return opening.store


def lock_folder(disk: Disk, root: str) -> FileLock:
    """Take the lock of a store's folder, which is made if need be; StoreError names the process that has it."""
    disk.make_folders(root)
    return disk.lock(filenames.lock(root))
