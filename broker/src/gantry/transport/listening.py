"""Opening a listener, with the reason when there is none.

asyncio passes over each address for which it can make no socket.  When none is left, Python up to 3.12 gives back a
server without sockets, and a later Python raises an OSError without errno that names only the addresses.  Here both are
an OSError with errno and strerror: out of descriptors, or no such address on this machine.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

_BACKLOG = 100  # asyncio's own
_USED_UP = (errno.EMFILE, errno.ENFILE)


async def listen(
    make: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    *,
    backlog: int = _BACKLOG,
    start_serving: bool = True,
) -> asyncio.Server:
    """Listen on host:port ("": every address; 0: any free port); raise OSError with errno and strerror if not."""
    loop = asyncio.get_running_loop()
    try:
        made = await loop.create_server(make, host or None, port, backlog=backlog, start_serving=start_serving)
    except OSError as error:
        if error.errno is None:
            raise _why_none() from error
        if error.errno in _USED_UP:
            raise _used_up(error) from error
        raise
    if not made.sockets:
        raise _why_none()
    return made


async def open_sockets(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Return listening sockets of all addresses of host ("": every address); raise OSError with errno and strerror."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    opened: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            one = _socket(family)
            if one is None:
                continue
            opened.append(one)
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
            one.listen(backlog)
    except OSError:
        for one in opened:
            one.close()
        raise
    if not opened:
        raise _why_none()
    return opened


def _socket(family: int) -> socket.socket | None:
    try:
        return socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        if error.errno in _USED_UP:
            raise _used_up(error) from error
        return None  # as asyncio: a family that this system does not have is passed over


def _why_none() -> OSError:
    try:
        socket.socket().close()
    except OSError as error:
        return _used_up(error)
    return OSError(errno.EADDRNOTAVAIL, "no such address on this machine")


def _used_up(error: OSError) -> OSError:
    return OSError(error.errno, f"{error.strerror}; raise the limit of open files (ulimit -n)")
