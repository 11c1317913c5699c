"""Why there is no listener: the same words from every loop and every Python."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest

from gantry.transport.listening import listen
from testkit.nodescriptor import no_descriptor_left

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": pytest.importorskip("uvloop").new_event_loop}


async def nothing_left(*_: object, **__: object) -> None:
    """As asyncio from 3.13 on."""
    raise OSError("could not bind on any address out of [('192.0.2.1', 0)]")


async def no_sockets(*_: object, **__: object) -> asyncio.Server:
    """As asyncio up to 3.12."""
    return asyncio.Server(asyncio.get_running_loop(), [], None, None, 100, None)  # type: ignore[call-arg,arg-type]


@pytest.mark.parametrize("is_used_up", [True, False], ids=["no descriptor", "no such address"])
@pytest.mark.parametrize("answer", ["asyncio", "uvloop", nothing_left, no_sockets])
def test_it_is_said_whether_descriptors_or_the_address_are_missing(
    answer: str | Callable[..., Any], is_used_up: bool
) -> None:
    async def play() -> OSError:
        if callable(answer):
            asyncio.get_running_loop().create_server = answer  # type: ignore[method-assign]
        with no_descriptor_left() if is_used_up else contextlib.nullcontext(), pytest.raises(OSError) as raised:
            await listen(asyncio.Protocol, "127.0.0.1" if is_used_up else "192.0.2.1", 0)
        return raised.value

    with asyncio.Runner(loop_factory=LOOPS["asyncio" if callable(answer) else answer]) as runner:
        error = runner.run(play())
    assert error.errno == (errno.EMFILE if is_used_up else errno.EADDRNOTAVAIL)
    assert ("limit of open files (ulimit -n)" in error.strerror) == is_used_up


async def test_an_empty_host_is_every_address() -> None:
    listener = await listen(asyncio.Protocol, "", 0)
    assert socket.AF_INET in {one.family for one in listener.sockets}
    listener.close()
    await listener.wait_closed()
