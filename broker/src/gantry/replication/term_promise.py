"""A member's highest promised epoch, and whether its disk still holds what it acknowledged: `gantry/vows.json`.

    promise       the highest epoch that it promised; never falls, and is durable before anything is sent in that epoch
    incarnation   disk * 4096 + losses.  `disk` is given by the register when a store is admitted under an ordinal, and
                  never given twice; `losses` is counted here.  So no incarnation has two different contents, though
                  an empty disk knows nothing of its predecessor

A loss is counted when a process starts and the one before it may have lost what it acknowledged:
    - it ran under ASYNC flush, did not stop in order, and the machine has booted since, or that is unknown; a killed
      process loses nothing, because the page cache remains
    - or the log is shorter than its last durable checkpoint, or a sync failed, under either policy

The policy that the former process *ran under* counts, noted when it began: the configuration may have changed since.

Opening a store moves its checkpoint, so a start that dies in between would hide what is missing.  Therefore `expected`
is noted before the store is opened, and cleared after the check.
A value is changed by the functions here and durable when `save` returns, before anything is built on it.  A damaged
file is never replaced by its backup, which may hold a lower promise: such a member has to be cloned again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from gantry.errors import StoreError
from gantry.model import documents
from gantry.replication.members import DISKS_MAX, LOSSES_MAX, NUMBER_MAX, Member, incarnation_of
from gantry.store import filenames, statefile
from gantry.store.disk import Disk


class Ending(Enum):
    """How the last process ended, according to the disk."""

    UNKNOWN = "unknown"  # it runs, or died
    CLEAN = "clean"
    SYNC_FAILED = "sync failed"


class Beginning(NamedTuple):
    """The state of machine and log when a process starts."""

    boot_id: str  # of this boot of the machine; empty: unknown
    is_sync_flush: bool
    log_end: int  # after recovery
    checkpoint: int  # the log was durable below this offset, according to the last durable checkpoint


@dataclass(frozen=True, slots=True)
class TermPromise:
    """The file's contents. The constructor raises ValueError for values out of range."""

    disk: int
    losses: int = 0
    promise: int = 0
    boot_id: str = ""
    ran_sync_flush: bool = True
    ending: Ending = Ending.CLEAN
    expected: int = 0  # the log has to reach this offset; not checked yet

    def __post_init__(self) -> None:
        if not (0 <= self.disk < DISKS_MAX and 0 <= self.losses <= LOSSES_MAX and 0 <= self.promise <= NUMBER_MAX):
            raise ValueError(
                f"disk {self.disk}, losses {self.losses}, promise {self.promise} are out of range; "
                "empty the member's folder to have it cloned again"
            )

    def member(self, ordinal: int) -> Member:
        """Return this member under its ordinal."""
        return Member(ordinal, incarnation_of(self.disk, self.losses))

    def expect(self, checkpoint: int) -> TermPromise:
        """Note before the store is opened that the log was durable below `checkpoint`."""
        return replace(self, expected=max(self.expected, checkpoint))

    def begin(self, beginning: Beginning) -> TermPromise:
        """Note that a process starts, and count a loss of the former one; the store is open."""
        losses = self.losses + self._has_lost(beginning)
        return replace(
            self,
            losses=losses,
            boot_id=beginning.boot_id,
            ran_sync_flush=beginning.is_sync_flush,
            ending=Ending.UNKNOWN,
            expected=0,
        )

    def _has_lost(self, beginning: Beginning) -> bool:
        if self.ending is Ending.SYNC_FAILED or beginning.log_end < max(beginning.checkpoint, self.expected):
            return True
        is_same_boot = bool(beginning.boot_id) and beginning.boot_id == self.boot_id
        return self.ending is Ending.UNKNOWN and not self.ran_sync_flush and not is_same_boot

    def promising(self, epoch: int) -> TermPromise:
        """Return the state with this epoch promised; ValueError when a higher one was promised."""
        if epoch < self.promise:
            raise ValueError(f"epoch {epoch} is below the promised {self.promise}")
        return replace(self, promise=epoch)

    def end(self, ending: Ending) -> TermPromise:
        """Return the state after the process has ended."""
        return replace(self, ending=ending)


def load(disk: Disk, root: str) -> TermPromise | None:
    """Return the state; None for a folder that never was a member's with a register. StoreError when it is damaged."""
    try:
        source = statefile.read_newest(disk, filenames.term_promise(root))
        if source is None and disk.exists(f"{filenames.term_promise(root)}.bak"):
            raise ValueError("it is missing, and what is left beside it is older")
        return None if source is None else _read(source)
    except ValueError as error:
        raise StoreError(
            f"{filenames.term_promise(root)}: {error}; what this member promised is not known, empty its folder to "
            "have it cloned again"
        ) from error


def _read(source: documents.Document) -> TermPromise:
    missing = {"disk", "losses", "promise", "bootId", "syncFlush", "ending"} - source.keys()
    if missing:
        raise ValueError(f"{min(missing)} is missing")
    return TermPromise(
        documents.integer(source, "disk"),
        documents.integer(source, "losses"),
        documents.integer(source, "promise"),
        documents.text(source, "bootId"),
        documents.boolean(source, "syncFlush"),
        Ending(documents.text(source, "ending")),
        documents.integer(source, "expected"),
    )


def save(disk: Disk, root: str, term_promise: TermPromise) -> None:
    """Write the state. Durable when it returns."""
    table: dict[str, object] = {
        "disk": term_promise.disk,
        "losses": term_promise.losses,
        "promise": term_promise.promise,
        "bootId": term_promise.boot_id,
        "syncFlush": term_promise.ran_sync_flush,
        "ending": term_promise.ending.value,
        "expected": term_promise.expected,
    }
    disk.make_folders(filenames.ours(root))
    statefile.replace(disk, filenames.term_promise(root), statefile.to_bytes(table), for_newest=True)
