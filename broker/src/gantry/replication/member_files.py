"""The files of a member beside its log: its identity, the table of epochs, and a pending change of the log.

    gantry/identity.json   clusterUID: the storeUID of the first master, or the register's; taken over by its slaves;
                           storeUID: of this folder, also of one that is in no group
    gantry/epochs          the table of epochs, as bytes
    gantry/reshape.json    there while the log has to be cut, or begun at another offset, before it is opened

Each file is replaced as a whole and durable when its function returns.  The functions block, so they are for a start
and for the housekeeper.

**Reshaping** needs a closed store.  The plan is written and synced first, and `carry_out` executes it before the store
is opened.  An interrupted execution is repeated from the beginning, and the plan is removed last.  Queues and index
hold only confirmed messages, which are never cut.
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
class StoreIdentity:
    """Ids of the cluster and of this folder; cluster_uid is empty until a slave has connected to its master."""

    cluster_uid: str
    store_uid: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Cut the log at an offset, or begin an empty log there; `epochs`: the table afterwards.

    store_uid: the folder becomes this other store, so that its earlier acknowledgements do not count; empty: no change
    """

    step: Step
    at: int
    epochs: EpochTable
    store_uid: str = ""


def load_identity(disk: Disk, root: str) -> StoreIdentity | None:
    """Return the folder's identity; None for a folder that never was a member's. StoreError when it is damaged."""
    source = statefile.read_object(disk, filenames.identity(root))
    if source is None:
        return None
    try:
        found = StoreIdentity(documents.text(source, "clusterUID"), documents.text(source, "storeUID"))
    except ValueError as error:
        raise StoreError(f"{filenames.identity(root)}: {error}") from error
    if not found.store_uid:
        raise StoreError(f"{filenames.identity(root)} has no storeUID; restore it from identity.json.bak")
    return found


def save_identity(disk: Disk, root: str, identity: StoreIdentity) -> None:
    """Write the identity. Durable when it returns."""
    disk.make_folders(filenames.ours(root))
    table = {"clusterUID": identity.cluster_uid, "storeUID": identity.store_uid}
    statefile.replace(disk, filenames.identity(root), statefile.to_bytes(table))


def load_epochs(disk: Disk, root: str) -> EpochTable:
    """Return the table; empty when there is no file. StoreError when it is damaged."""
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
    """Write the table. Durable when it returns."""
    disk.make_folders(filenames.ours(root))
    statefile.replace(disk, filenames.epochs(root), table.encode())


def save_plan(disk: Disk, root: str, plan: Plan) -> None:
    """Write the plan that the next start carries out. After a StoreError there is no plan.

    A plan that may not be durable is removed: the member continues, and a later start would cut newer messages.
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
        # The removal is durable before anything is acknowledged again: a welcome is written to the same folder first.
        disk.unlink(filenames.reshape(root))
        raise


def load_plan(disk: Disk, root: str) -> Plan | None:
    """Return the pending plan; None when there is none. StoreError when it is damaged."""
    path = filenames.reshape(root)
    if not disk.exists(path):
        return None  # a backup alone is left from a plan that was carried out
    source = statefile.read_object(disk, path) or {}
    try:
        step, at = Step(documents.text(source, "step")), documents.integer(source, "at")
        plan = Plan(step, at, epochs_in(source), documents.text(source, "storeUID"))
    except ValueError as error:
        raise StoreError(f"{path}: {error}") from error
    return plan


def carry_out(disk: Disk, root: str, segment_bytes: int, clock: Clock) -> Plan | None:
    """Carry out the pending plan and return it; None when there is none. The store is closed, and the caller holds the
    folder's lock.
    """
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
        raise StoreError(f"the log of {root} is to be cut at {at}, but it is confirmed up to {known}; nothing was cut")
    # First the flushed mark: the next start must not expect the bytes that are about to be cut.
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
    # The backup too: queues would begin at the offsets of the removed log.
    for path in (filenames.queue_base(root), f"{filenames.queue_base(root)}.bak"):
        disk.unlink(path)
    disk.remove_tree(filenames.consume_queues(root))
    disk.remove_tree(filenames.index(root))
    disk.sync_folder(filenames.ours(root))
    disk.sync_folder(root)
    disk.make_folders(folder)
    for name in reversed(disk.list(folder)):
        # A segment at `at` is the empty one that a former attempt made, unless the whole log is removed.
        if is_emptied or name != filenames.by_offset(folder, at).rsplit("/", 1)[1]:
            disk.unlink(f"{folder}/{name}")
            disk.sync_folder(folder)
    if not disk.list(folder):
        create_segment(disk, root, at, segment_bytes)
