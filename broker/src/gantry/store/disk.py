"""The disk as an interface: every byte the store reads, writes or makes durable goes through `Disk` and `File`.

A simulated disk implements the same two Protocols, keeps any subset of unsynced pages at a power cut, and
fails or fills up on demand; therefore nothing else in the store may import os, mmap or fcntl.

Rules that the interface enforces:
  - Writes go by pwrite, maps are for reading.  A write into a mapped hole on a full disk would kill the
    process by SIGBUS; pwrite returns ENOSPC, which becomes DiskFullError.
  - There is no truncate.  No file that may be mapped is ever shortened; a tail is zeroed.
  - A name is durable when its folder was synced (sync_folder), contents when sync_data returned.
  - A failed sync is SyncFailedError and final: Linux marks the failed pages clean, a second sync proves nothing.

Maps are dropped, never closed: the memory stays until the last memoryview that refers to it (output that
waits in a socket buffer) is gone, also when the file was unlinked meanwhile.

Thread rule: a File may be used by several threads for pwrite, pread and sync_data; map, unmap and close
belong to one thread.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from typing import Protocol

from gantry.errors import DiskFullError, StoreError, SyncFailedError
from gantry.store import filesystem, lockfile

Buffer = bytes | bytearray | memoryview

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_ZERO_CHUNK_BYTES = 1 << 20


class File(Protocol):
    """One open file; which threads may call what stands in the module's docstring."""

    path: str

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of data at offset or raise: DiskFullError when there is no room, else StoreError."""
        ...

    def pread(self, count: int, offset: int) -> bytes:
        """Up to count bytes from offset; fewer only at the end of the file."""
        ...

    def map(self) -> memoryview:
        """A read-only view of the whole file as it is sized now; later writes show through it."""
        ...

    def unmap(self) -> None:
        """Forget the map; views that were given out stay valid."""
        ...

    def sync_data(self) -> None:
        """Contents and size are durable when this returns; SyncFailedError is final."""
        ...

    def allocate(self, length: int) -> None:
        """Reserve blocks for [0, length) and grow the file to length; DiskFullError when there is no room."""
        ...

    def zero(self, start: int, end: int) -> None:
        """Make [start, end) read as zeros without giving blocks back; the file does not grow."""
        ...

    def size(self) -> int:
        """Return the length of the file in bytes."""
        ...

    def close(self) -> None:
        """Give the descriptor back; views of the map stay valid."""
        ...


class FileLock(Protocol):
    """A held lock of a store's folder; the system releases it when its process dies."""

    def release(self) -> None:
        """Release the lock."""
        ...


class FileSystem(Protocol):
    """A file system that is synced as a whole: for many files this is cheaper than one sync for each."""

    def sync(self, written: str) -> None:
        """All that was written, made or named on it since it was opened is durable when this returns; `written`: one of
        the files that changed.  SyncFailedError: something is not durable, and it need not be ours.
        """
        ...

    def close(self) -> None:
        """Close the descriptor by which the file system is synced."""
        ...


class Disk(Protocol):
    """Folders and names; paths are plain strings with `/`."""

    def open(self, path: str, create: bool) -> File:
        """Open for reading and writing; create makes a missing file (empty), without it a missing one is StoreError."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or folder of this name is there."""
        ...

    def list(self, folder: str) -> list[str]:
        """Sorted names in a folder; a missing folder is an empty one."""
        ...

    def make_folders(self, path: str, durably: bool = True) -> None:
        """Make the folder and its parents, and make their names durable."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file a new name, replacing what had it; durable after sync_folder."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a folder with all that is in it; a missing one is fine."""
        ...

    def sync_folder(self, path: str) -> None:
        """Make the names in this folder durable."""
        ...

    def file_system(self, path: str) -> FileSystem | None:
        """The one that holds this folder; None where it cannot be made durable as a whole."""
        ...

    def usage(self, path: str) -> tuple[int, int]:
        """(total, free) bytes of the file system that holds path."""
        ...

    def modified_ms(self, path: str) -> int:
        """When the file's contents last changed, milliseconds since the epoch."""
        ...

    def lock(self, path: str) -> FileLock:
        """Take the store's lock or raise StoreError naming the process that has it."""
        ...


def unlink_in_order(disk: Disk, path: str) -> None:
    """Remove a file and make that durable before anything is removed after it: no gap in a row of files."""
    disk.unlink(path)
    disk.sync_folder(path.rsplit("/", 1)[0])


_ADVICE = {
    errno.EACCES: "let the broker's user write there, or choose another folder",
    errno.EPERM: "let the broker's user write there, or choose another folder",
    errno.EROFS: "mount it for writing, or choose another folder",
    errno.ENOTDIR: "a file is where a folder has to be; choose another folder",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files (fs.file-max)",
}


def _translated(error: OSError, doing: str, path: str) -> StoreError:
    advice = _ADVICE.get(error.errno or 0, "")
    reason = f"{doing} {path}: {error.strerror or error}{advice and '; '}{advice}"
    if error.errno in _FULL:
        return DiskFullError(reason)
    return StoreError(reason)


class RealFile:
    """A file of the operating system; the contract of each method is that of `File`."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._view: memoryview | None = None

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of data at offset or raise."""
        try:
            done = os.pwrite(self._descriptor, data, offset)
            if done != len(data):
                self._pwrite_rest(memoryview(data), done, offset)
        except OSError as error:
            raise _translated(error, "write", self.path) from error

    def _pwrite_rest(self, data: memoryview, done: int, offset: int) -> None:
        # A short count is how a file system says that it filled up in the middle; the next call names the reason.
        while done < len(data):
            done += os.pwrite(self._descriptor, data[done:], offset + done)

    def pread(self, count: int, offset: int) -> bytes:
        """Up to count bytes from offset."""
        try:
            return os.pread(self._descriptor, count, offset)
        except OSError as error:
            raise _translated(error, "read", self.path) from error

    def map(self) -> memoryview:
        """A read-only view of the whole file; mapped again when the file has grown."""
        size = self.size()
        if self._view is None or len(self._view) != size:
            if size == 0:
                return memoryview(b"")
            try:
                self._view = memoryview(mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ))
            except (OSError, ValueError) as error:
                raise StoreError(f"map {self.path}: {error}") from error
        return self._view

    def fileno(self) -> int:
        """The descriptor, for system calls that this class does not make."""
        return self._descriptor

    def unmap(self) -> None:
        """Forget the map; the memory goes with the last view."""
        self._view = None

    def sync_data(self) -> None:
        """fdatasync; a failure is final."""
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise SyncFailedError(f"fdatasync {self.path}: {error.strerror}") from error

    def allocate(self, length: int) -> None:
        """posix_fallocate from 0 to length."""
        try:
            os.posix_fallocate(self._descriptor, 0, length)
        except OSError as error:
            raise _translated(error, f"allocate {length} bytes for", self.path) from error

    def zero(self, start: int, end: int) -> None:
        """FALLOC_FL_ZERO_RANGE, or zeros written where the file system does not know it (tmpfs)."""
        assert 0 <= start <= end <= self.size(), f"zero [{start}, {end}) outside {self.path}"
        if start == end:
            return
        failed = filesystem.zero_range(self._descriptor, start, end - start)
        if failed in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            self._write_zeros(start, end)
        elif failed:
            raise _translated(OSError(failed, os.strerror(failed)), "zero a part of", self.path)

    def _write_zeros(self, start: int, end: int) -> None:
        # What reads as zero already is left alone, so that a hole of a gigabyte is not filled.
        zeros = bytes(_ZERO_CHUNK_BYTES)
        while start < end:
            count = min(_ZERO_CHUNK_BYTES, end - start)
            if self.pread(count, start) != zeros[:count]:
                self.pwrite(zeros[:count], start)
            start += count

    def size(self) -> int:
        """Return the length of the file in bytes."""
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the descriptor; views of the map stay valid."""
        self._view = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RealDisk:
    """The operating system's file system; `writable=False` opens files read-only (`gantry store verify`)."""

    def __init__(self, writable: bool = True) -> None:
        self._flags = os.O_RDWR if writable else os.O_RDONLY
        self._writable = writable

    def open(self, path: str, create: bool) -> RealFile:
        """Open a file; create makes a missing one."""
        assert self._writable or not create, f"create {path} on a disk opened for reading"
        try:
            return RealFile(path, os.open(path, self._flags | (os.O_CREAT if create else 0), 0o644))
        except OSError as error:
            raise _translated(error, "open", path) from error

    def exists(self, path: str) -> bool:
        """Whether this name is there."""
        return os.path.exists(path)

    def list(self, folder: str) -> list[str]:
        """Sorted names in a folder."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _translated(error, "list", folder) from error

    def make_folders(self, path: str, durably: bool = True) -> None:
        """Make folder and parents, each new name synced in its parent."""
        if not durably:
            try:
                os.makedirs(path, 0o755, exist_ok=True)
            except OSError as error:
                raise _translated(error, "make folder", path) from error
            return
        parent = os.path.dirname(path)
        if os.path.isdir(path):
            # A process may have made it and died before it synced the name; such a folder has no folders inside.
            self.sync_folder(parent or ".")
            return
        if parent and parent != path:
            self.make_folders(parent)
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            return
        except OSError as error:
            raise _translated(error, "make folder", path) from error
        self.sync_folder(parent or ".")

    def rename(self, old: str, new: str) -> None:
        """Atomically give old the name new."""
        try:
            os.rename(old, new)
        except OSError as error:
            raise _translated(error, "rename", old) from error

    def unlink(self, path: str) -> None:
        """Remove a file if it is there."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _translated(error, "remove", path) from error

    def remove_tree(self, path: str) -> None:
        """Remove a folder and all in it if it is there."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _translated(error, "remove", path) from error

    def sync_folder(self, path: str) -> None:
        """Make the names in the folder durable by fsync; SyncFailedError when that fails."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise _translated(error, "open folder", path) from error
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise SyncFailedError(f"fsync folder {path}: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def file_system(self, path: str) -> filesystem.RealFileSystem | None:
        """Return the file system for syncfs; None where syncfs does not report every failure."""
        return filesystem.opened(path)

    def usage(self, path: str) -> tuple[int, int]:
        """statvfs: what an unprivileged process may use and others have used, and how much of it is left.

        As df and RocketMQ count: blocks that are kept for root are not taken for used ones.
        """
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise _translated(error, "statvfs", path) from error
        used = found.f_blocks - found.f_bfree
        return (used + found.f_bavail) * found.f_frsize, found.f_bavail * found.f_frsize

    def modified_ms(self, path: str) -> int:
        """Return st_mtime in milliseconds since the epoch; StoreError when the file cannot be read."""
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except OSError as error:
            raise _translated(error, "stat", path) from error

    def lock(self, path: str) -> lockfile.RealLock:
        """Lock bytes 0..1 of path by F_OFD_SETLK and write the process id into it, for errors of other processes."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise _translated(error, "open", path) from error
        return lockfile.locked(path, descriptor)
