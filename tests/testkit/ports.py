"""Ports for processes that are started later, or again and again on the same one.

A port that is only looked at is free until somebody else takes it: another test, the same one a moment later, anyone
who runs beside.  So it is held: bound without listening, with SO_REUSEADDR, which lets one server (asyncio, Go and Java
all set it) listen beside the holder, and nobody else find it free.  The system gives such a port to no connection
either.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections import deque

VIP = -2  # RocketMQ's second listener, as seen from the first
_FIRST, _LAST = 10_000, 32_000  # below what systems give to outgoing connections
_TRIES = 400
_HELD_MAX = 300  # sockets of this process; the oldest belong to tests that are long over
_held: deque[socket.socket] = deque()


def free_port(*beside: int) -> int:
    """A port that is ours from now on, together with those at these distances from it."""
    choose = random.SystemRandom()
    for _ in range(_TRIES):
        port = choose.randrange(_FIRST, _LAST)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for distance in (0, *beside):
                _hold(port + distance, stack)
            while len(_held) > _HELD_MAX:
                _held.popleft().close()
            stack.pop_all()
            return port
    raise AssertionError(f"no free port in {_TRIES} tries")


def _hold(port: int, stack: contextlib.ExitStack) -> None:
    holder = stack.enter_context(socket.socket())
    holder.bind(("127.0.0.1", port))  # alone: fails when anybody else has it, be it as a holder
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # from now on beside one server
    _held.append(holder)
