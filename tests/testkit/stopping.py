"""Stopping a process with SIGSTOP, and knowing that it stands still.

The signal reaches a process when one of its threads is given a processor.  On a busy machine its other threads may
answer requests until then, so a test that goes on at once may be answered by a process that it takes for stopped.
"""

import os
import signal
import threading
import time
from pathlib import Path

from testkit.patience import HANG_S

_LOOK_S = 0.002
_STATE = 0  # the first field behind the name in /proc/PID/task/TID/stat
_STOPPED = "Tt"


def stop(pid: int) -> None:
    """Send SIGSTOP and return when every thread of the process has stopped; ProcessLookupError when it is gone."""
    os.kill(pid, signal.SIGSTOP)
    until, nothing = time.monotonic() + HANG_S, threading.Event()
    while not _stands_still(pid):
        assert time.monotonic() < until, f"process {pid} goes on {HANG_S:g} s after SIGSTOP"
        nothing.wait(_LOOK_S)  # the kernel tells its parent only


def _stands_still(pid: int) -> bool:
    """Whether all threads have stopped; ProcessLookupError when there is no such process."""
    try:
        threads = [each.read_text().rpartition(")")[2].split() for each in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread ended meanwhile
    if not threads:
        raise ProcessLookupError(f"process {pid} is gone")
    return all(thread[_STATE] in _STOPPED for thread in threads)
