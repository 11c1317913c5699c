"""A process that has used up its file descriptors."""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401  a connection to a host by name loads it, and could not in here
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Nothing can be opened in this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        highest = max(map(int, os.listdir("/proc/self/fd")))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, before[1]))
        with contextlib.suppress(OSError):
            while True:
                stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))
        yield
