"""Syncing a file system as a whole: one syncfs instead of thousands of fdatasyncs.

It relies on the following:

  - When syncfs returns, everything that was written, made and named on the file system before is on the disk: data,
    sizes and names.  This holds for the file systems in `_KNOWN`; for others (FUSE, network, overlays) it is not known,
    and `opened` returns None.
  - Since Linux 5.8 syncfs fails when anything on the file system could not be written back since this descriptor was
    opened or last synced.  Older kernels report nothing, and `opened` returns None.  So the descriptor has to be opened
    before the first write whose failure it shall report, and a failure may concern another program's file.
  - A file system whose journal is empty may not flush the drive's cache (XFS).  Therefore a file that was just written
    is synced by fdatasync, which ends with a flush of that cache on each of these file systems.

It also writes the dirty pages of other programs, so it is for many files, not for a few.

Only `gantry.store.disk` uses this module.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re

from gantry.errors import SyncFailedError

_FALLOC_FL_ZERO_RANGE = 0x10
_STATFS_BYTES = 256
# linux/magic.h: ext2 to ext4, XFS, btrfs, F2FS.
_KNOWN = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010})
_REPORTS_ERRORS = (5, 8)


class RealFileSystem:
    """The file system below an open folder; one thread at a time."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def sync(self, written: str) -> None:
        """Make everything on it durable; `written`: a file on it that has changed since the last time."""
        failed = _call("syncfs", self._descriptor)
        if failed:
            raise SyncFailedError(f"syncfs {self._path}: {os.strerror(failed)}")
        try:
            descriptor = os.open(written, os.O_RDWR)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise SyncFailedError(f"fdatasync {written}: {error.strerror}") from error

    def close(self) -> None:
        """Close the descriptor of the folder."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def opened(path: str) -> RealFileSystem | None:
    """Return the file system that holds this folder, or None where one syncfs is not known to suffice."""
    if not is_reporting(os.uname().release):
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    if _kind(descriptor) in _KNOWN:
        return RealFileSystem(path, descriptor)
    os.close(descriptor)
    return None


def is_reporting(release: str) -> bool:
    """Whether syncfs of this kernel reports what could not be written."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return found is not None and (int(found[1]), int(found[2])) >= _REPORTS_ERRORS


def _kind(descriptor: int) -> int:
    """f_type of struct statfs, its first field; os.statvfs leaves it out."""
    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    if _call("fstatfs", descriptor, answer):
        return 0
    # Some of the numbers have their highest bit set, which a long of 32 bits shows as a sign.
    return ctypes.c_long.from_buffer(answer).value & 0xFFFFFFFF


def zero_range(descriptor: int, start: int, length: int) -> int:
    """The errno of fallocate(FALLOC_FL_ZERO_RANGE), 0 when it worked."""
    mode, begin, size = ctypes.c_int(_FALLOC_FL_ZERO_RANGE), ctypes.c_int64(start), ctypes.c_int64(length)
    return _call("fallocate", descriptor, mode, begin, size)


def _call(name: str, descriptor: int, *rest: object) -> int:
    """The errno of a system call that Python has no wrapper for, 0 when it worked; other threads go on meanwhile."""
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if call is None:
        return errno.ENOSYS
    return 0 if call(ctypes.c_int(descriptor), *rest) == 0 else ctypes.get_errno()
