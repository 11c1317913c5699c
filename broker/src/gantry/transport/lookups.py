"""Connections to hosts by name, where a name that nobody answers for delays no other name.

A loop looks names up in a few shared threads (uvloop has four), and nobody can take back a lookup: one that hangs for
40 s keeps its thread although its caller has given up.  So each name has a thread of its own here, and at most one
lookup under way, which later callers join.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable
from typing import TypeVar

P = TypeVar("P", bound=asyncio.BaseProtocol)

_NAMES_AT_ONCE = 64  # threads

# Added by the loop's thread, removed by that of the lookup when the resolver has answered.
_under_way: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Future[list[str]]] = {}


async def connect(protocol: Callable[[], P], host: str, port: int) -> P:
    """Connect to the first address of a host that takes the connection; OSError when none does."""
    loop = asyncio.get_running_loop()
    if _is_address(host):
        return (await loop.create_connection(protocol, host, port))[1]
    failure: OSError | None = None
    for address in await addresses(host):
        try:
            return (await loop.create_connection(protocol, address, port))[1]
        except OSError as error:
            failure = error
    raise failure or OSError(f"{host} has no address")


async def addresses(name: str) -> list[str]:
    """Return the numeric addresses of a name, as the system's resolver orders them; OSError when it has none.

    Giving up waiting ends nothing: the lookup goes on for those who ask later.
    """
    loop = asyncio.get_running_loop()
    found = _under_way.get((loop, name))
    if found is None:
        if len(_under_way) >= _NAMES_AT_ONCE:
            raise OSError(f"{name}: {_NAMES_AT_ONCE} names are being looked up and not answered; look at the resolver")
        found = _under_way[loop, name] = loop.create_future()
        found.add_done_callback(_heard)
        try:
            threading.Thread(target=_look_up, args=(loop, name, found), name=f"lookup of {name}", daemon=True).start()
        except RuntimeError as error:
            del _under_way[loop, name]
            raise OSError(f"{name}: no thread to look it up: {error}; allow this process more of them") from error
    return await asyncio.shield(found)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _look_up(loop: asyncio.AbstractEventLoop, name: str, found: asyncio.Future[list[str]]) -> None:
    outcome: list[str] | OSError
    try:
        outcome = [_text(address) for *_, address in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except OSError as error:
        outcome = error
    except UnicodeError as error:
        outcome = OSError(f"{name!r} is no host name: {error}")
    del _under_way[loop, name]  # here, for a loop that ends now calls nothing any more
    with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
        loop.call_soon_threadsafe(_tell, found, outcome)


def _text(address: tuple[object, ...]) -> str:
    """The ip of a socket address; one of IPv6 that holds on one link only names the link."""
    ip, scope = address[0], address[3] if len(address) > 3 else 0
    return f"{ip}%{scope}" if scope else str(ip)


def _tell(found: asyncio.Future[list[str]], outcome: list[str] | OSError) -> None:
    if found.done():
        return
    if isinstance(outcome, OSError):
        found.set_exception(outcome)
    else:
        found.set_result(outcome)


def _heard(found: asyncio.Future[list[str]]) -> None:
    if not found.cancelled():
        found.exception()  # those who asked may all have given up
