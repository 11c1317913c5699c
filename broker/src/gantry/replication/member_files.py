"""What a member keeps on its disk beside the log: who it is, the epochs, and what must be done to the log.

    gantry/identity.json   clusterUID: the storeUID of the first master, or the register's; taken over by its slaves;
                           storeUID: of this folder, also of one that is in no group
    gantry/epochs          the table of epochs, as bytes
    gantry/reshape.json    there while the log has to be cut, or begun elsewhere, before it is opened

Each is replaced as a whole and durable when its function returns; they block, so they are for a start and for the
housekeeper.  **Reshaping** is for a closed store: the plan is written and synced first, `carry_out` does it before the
store is opened, any number of times until the plan is gone, and the plan goes last.  Queues and index hold only what is
confirmed, and that is never cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gantry.clock import Clock
from gantry.errors import StoreError
from gantry.model import documents
from gantry.replication import epochs as tables
from gantry.replication.epochs import EpochTable
from gantry.replication.handshake import Step, epochs_in
from gantry.store import filenames, recoverypoint, statefile
from gantry.store.background import InlineBackground
from gantry.store.disk import Disk
from gantry.store.segments import Segments, create_segment


@dataclass(frozen=True, slots=True)
class Identity:
    """cluster_uid is empty until a slave has met its master."""

    cluster_uid: str
    store_uid: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Cut the log at an offset, or begin an empty one there; the epochs that it has then.

    store_uid: the folder becomes another store, so that nothing which it said before counts; empty: it stays what it is
    """

    step: Step
    at: int
    epochs: EpochTable
    store_uid: str = ""


def load_identity(disk: Disk, root: str) -> Identity | None:
    """Who this is; None for a folder that never was a member's."""
    source = statefile.read_object(disk, filenames.identity(root))
    if source is None:
        return None
    try:
        found = Identity(documents.text(source, "clusterUID"), documents.text(source, "storeUID"))
    except ValueError as error:
        raise StoreError(f"{filenames.identity(root)}: {error}") from error
    if not found.store_uid:
        raise StoreError(f"{filenames.identity(root)} has no storeUID; restore it from identity.json.bak")
    return found


def save_identity(disk: Disk, root: str, identity: Identity) -> None:
    """Durable when this returns."""
    disk.make_folders(filenames.ours(root))
    table = {"clusterUID": identity.cluster_uid, "storeUID": identity.store_uid}
    statefile.replace(disk, filenames.identity(root), statefile.to_bytes(table))


def load_epochs(disk: Disk, root: str) -> EpochTable:
    """The table; empty when there is none."""
    path = filenames.epochs(root)
    for candidate in (path, f"{path}.bak"):
        if disk.exists(candidate):
            file = disk.open(candidate, create=False)
            try:
                return tables.decode(file.pread(file.size(), 0))
            except ValueError as error:
                raise StoreError(f"{candidate}: {error}; restore it from {path}.bak") from error
            finally:
                file.close()
    return EpochTable()


def save_epochs(disk: Disk, root: str, table: EpochTable) -> None:
    """Durable when this returns."""
    disk.make_folders(filenames.ours(root))
    statefile.replace(disk, filenames.epochs(root), table.encode())


def save_plan(disk: Disk, root: str, plan: Plan) -> None:
    """From here on the next start reshapes the log; StoreError: it does not.

    What was not kept for certain is removed: the member goes on, and a later start would cut what it has by then.
    """
    table = {
        "step": plan.step.value,
        "at": plan.at,
        "epochs": [list(entry) for entry in plan.epochs.entries],
        "storeUID": plan.store_uid,
    }
    try:
        statefile.replace(disk, filenames.reshape(root), statefile.to_bytes(table))
    except StoreError:
        # Durable before anything is acknowledged again: a welcome is kept in the same folder first.
        disk.unlink(filenames.reshape(root))
        raise


def load_plan(disk: Disk, root: str) -> Plan | None:
    """What has to be done, if anything has."""
    path = filenames.reshape(root)
    if not disk.exists(path):
        return None  # a backup alone is of a plan that was carried out
    source = statefile.read_object(disk, path) or {}
    try:
        step, at = Step(documents.text(source, "step")), documents.integer(source, "at")
        plan = Plan(step, at, epochs_in(source), documents.text(source, "storeUID"))
    except ValueError as error:
        raise StoreError(f"{path}: {error}") from error
    return plan


def carry_out(disk: Disk, root: str, segment_bytes: int, clock: Clock) -> Plan | None:
    """Do what the plan says, if there is one; before the store is opened.  The caller holds the folder's lock."""
    plan = load_plan(disk, root)
    if plan is None:
        return None
    if plan.step is Step.CUT:
        _cut(disk, root, plan.at, segment_bytes, clock)
    elif plan.step is Step.BEGIN:
        _begin(disk, root, plan.at, segment_bytes, is_emptied=bool(plan.store_uid))
    save_epochs(disk, root, plan.epochs)
    known = load_identity(disk, root) if plan.store_uid else None
    if known is not None:
        save_identity(disk, root, replace(known, store_uid=plan.store_uid))
    disk.unlink(filenames.reshape(root))
    disk.sync_folder(filenames.ours(root))
    return plan


def _cut(disk: Disk, root: str, at: int, segment_bytes: int, clock: Clock) -> None:
    point = recoverypoint.load(disk, root)
    if point is None or point.dispatched > at:
        known = "nothing" if point is None else str(point.dispatched)
        raise StoreError(f"the log of {root} shall be cut at {at}, but up to {known} it is confirmed; nothing was cut")
    # First the mark: a start must not expect what is about to go.
    recoverypoint.save(
        disk, root, replace(point, generation=point.generation + 1, clean=False, flushed=min(point.flushed, at))
    )
    segments = Segments(disk, root, segment_bytes, clock, InlineBackground().housekeeper)
    try:
        segments.load()
        segments.cut(at)
    finally:
        segments.close()


def _begin(disk: Disk, root: str, at: int, segment_bytes: int, is_emptied: bool) -> None:
    folder = filenames.commit_log(root)
    disk.unlink(filenames.recovery(root))
    # Its backup too: queues would begin where those of the log that goes had come to.
    for path in (filenames.queue_base(root), f"{filenames.queue_base(root)}.bak"):
        disk.unlink(path)
    disk.remove_tree(filenames.consume_queues(root))
    disk.remove_tree(filenames.index(root))
    disk.sync_folder(filenames.ours(root))
    disk.sync_folder(root)
    disk.make_folders(folder)
    for name in reversed(disk.list(folder)):
        # The segment there is the empty one that a former attempt made, unless the log is thrown away.
        if is_emptied or name != filenames.by_offset(folder, at).rsplit("/", 1)[1]:
            disk.unlink(f"{folder}/{name}")
            disk.sync_folder(folder)
    if not disk.list(folder):
        create_segment(disk, root, at, segment_bytes)
