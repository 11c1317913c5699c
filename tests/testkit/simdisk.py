"""A disk in memory that forgets what was not synced: the twin of `gantry.store.disk.RealDisk` for crash tests.

Every file is kept twice: as it reads now (the page cache) and as it was last made durable.  `crash` builds the
disk that the next boot finds: of the pages written since the last sync any subset survives, whole or by its
512-byte sectors, in no order, and each in any state that it went through, because the kernel writes back when
it likes; of the names created, renamed or removed since the last sync_folder any subset.  That is more than any
single file system does, and a store that survives it leans on nothing but its syncs.

Faults come from a `Faults` plan, which counts *operations* (everything that changes the disk or makes it
durable; reads are not counted):

    power_cut_at n      the n-th operation is begun and never returns: PowerCut; a sync has made nothing durable
    fail_at n           the n-th operation fails with an errno
    fail_kind, nth      only operations of that kind are counted, e.g. the third "sync"
    (and `quota_bytes` of the disk: blocks run out, a pwrite may stop in the middle)

A failed sync does what Linux does: the pages that were dirty keep their contents and count as clean, so a later
sync of the same file makes none of them durable until they are written again.  A sync of the whole file system that
fails loses pages of any files; each of these says so at its own next sync.  Or (`is_foreign`) it was a file that is
none of ours, and ours are durable.

Not modelled: reordering across an fdatasync, lying hardware, latent errors of what was durable.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from gantry.errors import DiskFullError, StoreError, SyncFailedError
from testkit.simpages import PAGE_BYTES, Buffer, Folder, Move, Node, make, pages_of, survivor, walk, walk_folders

__all__ = ["PAGE_BYTES", "Faults", "PowerCut", "SimDisk", "SimFile", "SimLock"]

_NO_QUOTA_BYTES = 1 << 50


class PowerCut(BaseException):
    """The machine is off.  Not an Exception, so that no handler of the code under test can catch it by accident."""


@dataclass
class Faults:
    """What goes wrong, and when; operation numbers count from 1."""

    power_cut_at: int = 0
    fail_at: int = 0
    fail_errno: int = errno.EIO
    fail_kind: str = ""
    is_foreign: bool = False
    """A failing sync of the file system is that of somebody else's file."""
    seen: int = 0
    """Operations that were counted so far (of fail_kind only, when it is set)."""
    fired: bool = False
    trace: list[str] = field(default_factory=list)

    def next_operation(self, kind: str, path: str) -> int:
        """Count one operation; the errno that it has to fail with, -1 for the power cut, else 0."""
        self.trace.append(f"{kind} {path}")
        if self.fail_kind and kind != self.fail_kind:
            return 0
        self.seen += 1
        if self.seen == self.power_cut_at:
            self.fired = True
            return -1
        if self.seen == self.fail_at:
            self.fired = True
            return self.fail_errno
        return 0


class SimFile:
    """One open file of a SimDisk; see `gantry.store.disk.File`."""

    def __init__(self, disk: SimDisk, path: str, node: Node) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._mapped: tuple[int, memoryview] | None = None
        self._open = True

    def pwrite(self, data: Buffer, offset: int) -> None:
        assert self._open, f"write to the closed {self.path}"
        data = bytes(data)
        room = self._disk.claim(self._node, offset, offset + len(data))
        self._disk.operation(
            "write",
            self.path,
            lambda: self._put(data[: room - offset], offset),
            lambda: self._put(data[: len(data) // 2], offset),
        )
        if room < offset + len(data):
            raise DiskFullError(f"write {self.path}: {os.strerror(errno.ENOSPC)}")

    def _put(self, data: bytes, offset: int) -> None:
        if data:
            self._node.put(data, offset)
            self._node.modified_ms = self._disk.now_ms()

    def pread(self, count: int, offset: int) -> bytes:
        assert self._open, f"read of the closed {self.path}"
        return bytes(self._node.data[offset : offset + count])

    def map(self) -> memoryview:
        size = len(self._node.data)
        if self._mapped is None or self._mapped[0] != size:
            self._mapped = size, memoryview(self._node.data).toreadonly()
        return self._mapped[1]

    def unmap(self) -> None:
        self._mapped = None

    def sync_data(self) -> None:
        assert self._open, f"sync of the closed {self.path}"
        self._disk.operation("sync", self.path, self._node.sync, lambda: self._node.fail_sync(self._disk.rng))
        if self._node.is_unreported:
            self._node.is_unreported = False
            raise SyncFailedError(f"sync {self.path}: {os.strerror(errno.EIO)}")

    def allocate(self, length: int) -> None:
        room = self._disk.claim(self._node, 0, length)
        if room < length:
            self._disk.operation("allocate", self.path, lambda: None)
            raise DiskFullError(f"allocate {length} bytes for {self.path}: {os.strerror(errno.ENOSPC)}")
        self._disk.operation("allocate", self.path, lambda: self._grow(length))

    def _grow(self, length: int) -> None:
        if length > len(self._node.data):
            self._node.resize(length)

    def zero(self, start: int, end: int) -> None:
        assert 0 <= start <= end <= len(self._node.data), f"zero [{start}, {end}) outside {self.path}"
        if start < end:
            self._disk.operation("zero", self.path, lambda: self._node.put(bytes(end - start), start))

    def size(self) -> int:
        return len(self._node.data)

    def close(self) -> None:
        self._mapped = None
        self._open = False


class SimFileSystem:
    """All of a SimDisk; see `gantry.store.disk.FileSystem`."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk

    def sync(self, written: str) -> None:
        assert self._disk.exists(written), f"{written} is not there to be synced"
        self._disk.operation("sync all", "", self._disk.sync_all, self._disk.fail_sync_all)

    def close(self) -> None:
        pass


class SimLock:
    """Held until released; a crash of the disk releases it too, since the new disk knows nothing of it."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class SimDisk:
    """See the module; `gantry.store.disk.Disk` says what each method promises.  A leading `/` means nothing."""

    def __init__(self, seed: int = 0, quota_bytes: int = _NO_QUOTA_BYTES) -> None:
        self.faults = Faults()
        self.quota_bytes = quota_bytes
        self.rng = random.Random(seed)
        self.now_ms: Callable[[], int] = lambda: 0
        self._root = Folder()
        self._held: set[str] = set()

    # -- names

    def open(self, path: str, create: bool) -> SimFile:
        folder, name = self._parent(path)
        found = folder.entries.get(name) if folder is not None else None
        if isinstance(found, Folder):
            raise StoreError(f"open {path}: {os.strerror(errno.EISDIR)}")
        if found is None:
            if folder is None or not create:
                raise StoreError(f"open {path}: {os.strerror(errno.ENOENT)}")
            node = Node()
            node.modified_ms = self.now_ms()
            self.operation("create", path, lambda: make(Move(node, None, (folder, name))))
            return SimFile(self, path, node)
        return SimFile(self, path, found)

    def exists(self, path: str) -> bool:
        folder, name = self._parent(path)
        return not name or (folder is not None and name in folder.entries)

    def list(self, folder: str) -> list[str]:
        found = self._folder(folder)
        return sorted(found.entries) if found is not None else []

    def make_folders(self, path: str, durably: bool = True) -> None:
        parts = _parts(path)
        there = sum(self.exists("/".join(parts[:depth])) for depth in range(1, len(parts) + 1))
        if there and durably:
            # Anyone who made it may have died before it synced the name; see RealDisk.
            self.sync_folder("/".join(parts[: there - 1]))
        for depth in range(there + 1, len(parts) + 1):
            parent, name = self._parent("/".join(parts[:depth]))
            assert parent is not None
            move = Move(Folder(), None, (parent, name))
            self.operation("mkdir", "/".join(parts[:depth]), lambda move=move: make(move))  # type: ignore[misc]
            if durably:
                self.sync_folder("/".join(parts[: depth - 1]))

    def rename(self, old: str, new: str) -> None:
        folder, name = self._parent(old)
        target, new_name = self._parent(new)
        if folder is None or name not in folder.entries or target is None:
            raise StoreError(f"rename {old}: {os.strerror(errno.ENOENT)}")
        self.operation("rename", old, lambda: make(Move(folder.entries[name], (folder, name), (target, new_name))))

    def unlink(self, path: str) -> None:
        folder, name = self._parent(path)
        if folder is None or name not in folder.entries:
            return
        self.operation("unlink", path, lambda: make(Move(folder.entries[name], (folder, name), None)))

    def remove_tree(self, path: str) -> None:
        found = self._folder(path)
        if found is None:
            return
        for name in list(found.entries):
            if isinstance(found.entries[name], Folder):
                self.remove_tree(f"{path}/{name}")
            else:
                self.unlink(f"{path}/{name}")
        folder, name = self._parent(path)
        assert folder is not None
        self.operation("rmdir", path, lambda: make(Move(found, (folder, name), None)))

    def sync_folder(self, path: str) -> None:
        folder = self._folder(path)
        if folder is None:
            raise StoreError(f"open folder {path}: {os.strerror(errno.ENOENT)}")
        self.operation("sync folder", path, folder.sync, lambda: None)

    def file_system(self, path: str) -> SimFileSystem | None:
        return SimFileSystem(self) if self._folder(path) is not None else None

    def usage(self, path: str) -> tuple[int, int]:
        del path
        return self.quota_bytes, max(0, self.quota_bytes - self._used_bytes())

    def modified_ms(self, path: str) -> int:
        return self._node(path).modified_ms

    def age_files(self, by_ms: int) -> None:
        """Make every file as if it was last written so much earlier."""
        folders = [self._root]
        while folders:
            for entry in folders.pop().entries.values():
                if isinstance(entry, Folder):
                    folders.append(entry)
                else:
                    entry.modified_ms -= by_ms

    def lock(self, path: str) -> SimLock:
        if path in self._held:
            raise StoreError(f"{path} is locked by another broker (process unknown); stop it or choose another folder")
        self.open(path, create=True).close()
        self._held.add(path)
        return SimLock(self._held, path)

    # -- the power

    def crash(self, rng: random.Random | None = None) -> SimDisk:
        """The disk as the next boot finds it; this one is left as it is, so that several crashes can be drawn from it.

        Without `rng` only what is durable survives.
        """
        after = SimDisk(seed=rng.getrandbits(32) if rng is not None else 0, quota_bytes=self.quota_bytes)
        after.now_ms = self.now_ms
        after._root = survivor(self._root, rng)
        return after

    def restart(self) -> SimDisk:
        """The same page cache after the death of the process alone: locks are gone, nothing else is.

        Lost pages that no sync has told of yet would fail a start once; that is left out.
        """
        self._held.clear()
        for _, node in walk(self._root, ""):
            node.is_unreported = False
        self.faults = Faults()
        return self

    # -- for tests: looking at files and damaging them without the store's knowledge

    def files(self) -> dict[str, bytes]:
        """Every file's contents by its path."""
        return {path: bytes(node.data) for path, node in walk(self._root, "")}

    def read(self, path: str) -> bytes:
        """The contents of one file."""
        return bytes(self._node(path).data)

    def damage(self, path: str, offset: int, data: bytes) -> None:
        """Overwrite bytes in a file, durably."""
        node = self._node(path)
        node.put(data, offset)
        node.make_durable(pages_of(offset, offset + len(data)))

    def shorten(self, path: str, size: int) -> None:
        """Cut a file off, durably: what a copy that was broken off leaves behind."""
        node = self._node(path)
        node.data, node.durable, node.older = node.data[:size], node.data[:size], []
        node.dirty.clear()

    # -- for SimFile

    def operation(
        self, kind: str, path: str, effect: Callable[[], None], failed: Callable[[], None] | None = None
    ) -> None:
        """Count one operation and carry it out, or do what its fault leaves behind and raise."""
        found = self.faults.next_operation(kind, path)
        is_sync = kind in ("sync", "sync folder", "sync all")
        if found == 0 or (found == errno.ENOSPC and is_sync):
            effect()  # a sync needs no room: blocks were claimed when they were written
        elif found == -1:
            if not is_sync:
                effect()
            raise PowerCut(f"at operation {self.faults.seen}: {kind} {path}")
        else:
            if failed is not None:
                failed()
            text = f"{kind} {path}: {os.strerror(found)}"
            if is_sync:
                raise SyncFailedError(text)
            raise DiskFullError(text) if found == errno.ENOSPC else StoreError(text)

    def sync_all(self) -> None:
        """What SimFileSystem promises: all contents and names are durable."""
        for _, node in walk(self._root, ""):
            node.sync()
        for folder in walk_folders(self._root):
            folder.sync()

    def fail_sync_all(self) -> None:
        """What a failed one leaves behind."""
        if self.faults.is_foreign:
            self.sync_all()
            return
        for _, node in walk(self._root, ""):
            node.fail_write_back(self.rng)

    def claim(self, node: Node, start: int, end: int) -> int:
        """Give blocks to [start, end) of a file as far as the quota reaches; the offset up to which it did."""
        wanted = [number for number in pages_of(start, end) if number not in node.blocks]
        room = len(wanted)
        if self.quota_bytes < _NO_QUOTA_BYTES:
            room = max(0, self.quota_bytes - self._used_bytes()) // PAGE_BYTES
        node.blocks.update(wanted[:room])
        return end if len(wanted) <= room else max(start, wanted[room] * PAGE_BYTES)

    def _used_bytes(self) -> int:
        return sum(len(node.blocks) for _, node in walk(self._root, "")) * PAGE_BYTES

    def _node(self, path: str) -> Node:
        folder, name = self._parent(path)
        found = folder.entries.get(name) if folder is not None else None
        if not isinstance(found, Node):
            raise StoreError(f"open {path}: {os.strerror(errno.ENOENT)}")
        return found

    def _parent(self, path: str) -> tuple[Folder | None, str]:
        parts = _parts(path)
        if not parts:
            return None, ""
        return self._folder("/".join(parts[:-1])), parts[-1]

    def _folder(self, path: str) -> Folder | None:
        found: Node | Folder | None = self._root
        for name in _parts(path):
            found = found.entries.get(name) if isinstance(found, Folder) else None
        return found if isinstance(found, Folder) else None


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
