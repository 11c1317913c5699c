"""The lock of a store's folder: one broker at a time, ours or RocketMQ's.

A lock of the open file description (F_OFD_SETLK) on bytes 0..1, which conflicts with Java's FileLock on the same
bytes and goes when its process dies.  The process id in the file is shown to processes that are refused.

RocketMQ's broker writes the word `lock` over the first bytes of the file when it starts.  The word stays in the file
until a start of ours has taken in what that broker did (`foreign.forget_opening`).

Only `gantry.store.disk` locks by this module.
"""

from __future__ import annotations

import fcntl
import os
import struct

from gantry.errors import StoreError

# struct flock of 64-bit Linux; F_OFD_SETLK wants l_pid 0.
_FLOCK = struct.Struct("hhqqi0q")
ROCKETMQ = b"lock"
_AFTER_ROCKETMQ = ROCKETMQ + b" "
CONTENT_BYTES_MAX = 64


class RealLock:
    """A lock that is held as long as its file stays open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock by closing its descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def locked(path: str, descriptor: int) -> RealLock:
    """Lock the file that is open here and own its descriptor, or close it and raise StoreError naming who has it."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    except OSError as error:
        holder = _holder(os.pread(descriptor, CONTENT_BYTES_MAX, 0).split(b"\n")[0])
        os.close(descriptor)
        raise StoreError(
            f"{path} is locked by another broker (process {holder}); stop it or choose another folder"
        ) from error
    is_after_rocketmq = os.pread(descriptor, len(ROCKETMQ), 0) == ROCKETMQ
    content = (_AFTER_ROCKETMQ if is_after_rocketmq else b"") + b"%d\n" % os.getpid()
    # Never empty in between: a process that is killed here must not take the word away.
    os.pwrite(descriptor, content, 0)
    os.ftruncate(descriptor, len(content))
    return RealLock(descriptor)


def _holder(content: bytes) -> str:
    """Return the process id in the file's first line.  Behind RocketMQ's word stands a rest of an older one."""
    found = content.removeprefix(_AFTER_ROCKETMQ)
    if found.startswith(ROCKETMQ):
        return "unknown"
    return found.decode("ascii", "replace").strip() or "unknown"
