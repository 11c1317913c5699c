"""The lock of a store's folder: one broker at a time, ours or RocketMQ's.

A lock of the open file description (F_OFD_SETLK) on bytes 0..1, which conflicts with Java's FileLock on the same
bytes and goes when its process dies.  The process id in the file is information for whoever is refused.

Only `gantry.store.disk` uses this module.
"""

from __future__ import annotations

import fcntl
import os
import struct

from gantry.errors import StoreError

# struct flock of 64-bit Linux; F_OFD_SETLK wants l_pid 0.
_FLOCK = struct.Struct("hhqqi0q")


class RealLock:
    """A held lock."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Closing the description releases the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def locked(path: str, descriptor: int) -> RealLock:
    """Lock the file that is open here and own its descriptor, or close it and raise StoreError naming who has it."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    except OSError as error:
        holder = os.pread(descriptor, 64, 0).split(b"\n")[0].decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreError(
            f"{path} is locked by another broker (process {holder}); stop it or choose another folder"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    return RealLock(descriptor)
