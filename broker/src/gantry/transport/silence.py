"""Whether a peer takes what is written to it, although it sends nothing.

A peer that reads a long answer slowly may be silent for minutes.  Its output leaves in pieces of up to megabytes, first
from the process to the system and then to the peer, so both are counted: it is taken while the sum falls.  How much a
peer may leave unread, and who makes room when others need it, is a matter of `output`.
"""

from __future__ import annotations

import fcntl
import sys
import termios
from collections.abc import Mapping
from typing import Generic, TypeVar

K = TypeVar("K")


def unsent_by_system(descriptor: int) -> int:
    """Return the bytes that the system has taken for a TCP socket and that the peer has not confirmed."""
    try:
        answer = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):  # no socket of TCP, or closed meanwhile
        return 0
    return int.from_bytes(answer, sys.byteorder)


class OutputProgress(Generic[K]):
    """What waited in some connections when they were looked at last."""

    def __init__(self) -> None:
        self._before: dict[K, int] = {}

    def taken_since(self, unsent: Mapping[K, int]) -> list[K]:
        """Return the connections for which less waits than at the last look; this one is the next one's last."""
        before, self._before = self._before, dict(unsent)
        return [one for one, count in unsent.items() if count < before.get(one, 0)]
