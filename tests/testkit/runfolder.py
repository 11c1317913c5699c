"""The folder of one run of the tests: `tmp_path` of every test lies in it.

pytest numbers the folders of runs and uses a number again once its run has passed. The older run then removes the lock
of the younger one as it exits, and a third run deletes the folder that is in use. So each run gets a folder that no
other run ever has, held by a lock that the kernel drops with the process. Folders of failed runs are kept, the newest
few; those of runs that passed are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "gantry-tests-"
KEPT = 3  # folders of failed runs
_LOCK = "lock"


class RunFolder:
    """A new folder in `parent`, and the lock that says that it is in use."""

    def __init__(self, parent: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    @property
    def tests(self) -> Path:
        """Return the folder for `--basetemp`, which pytest empties at the start."""
        return self.path / "t"

    def end(self, is_kept: bool) -> None:
        """Remove the folder, or keep it for anyone who looks at what failed; either way it is not in use any more."""
        if not is_kept:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_old(parent: Path) -> None:
    """Remove folders of runs that ended, except the newest few; folders in use, and other users', are left alone."""
    ended = []
    for path in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):  # its run has just passed
            found = path.stat()
            if found.st_uid == os.getuid() and not _in_use(path):
                ended.append((found.st_mtime_ns, path))
    for _, path in sorted(ended, reverse=True)[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)


def _in_use(path: Path) -> bool:
    """Return whether a process holds the lock, or may be about to: the folder has no lock yet."""
    with contextlib.ExitStack() as stack:
        try:
            lock = os.open(path / _LOCK, os.O_RDWR)
        except OSError:
            return True
        stack.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
