"""The floor of a round trip: a uvloop server that answers every frame with the same 120 bytes.

What a broker adds on top of this is its own work; the event loop, the system calls and the kernel's TCP are
already in here.  Prints `ready PORT` and serves until it is killed.
"""

from __future__ import annotations

import asyncio
import struct
from typing import cast

import uvloop

_HEADER = b'{"code":0,"flag":1,"language":"JAVA","opaque":1000000000,"version":479}'
_REPLY = struct.pack(">II", 116, len(_HEADER)) + _HEADER + b"x" * (112 - len(_HEADER))
assert len(_REPLY) == 120


class FixedReply(asyncio.BufferedProtocol):
    """Answers whole frames; keeps what is left of a partial one."""

    def __init__(self) -> None:
        self._buffer = bytearray(1 << 20)
        self._filled = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        end = self._filled + nbytes
        at = frames = 0
        while end - at >= 4:
            whole = 4 + int.from_bytes(self._buffer[at : at + 4], "big")
            if end - at < whole:
                break
            at += whole
            frames += 1
        self._buffer[: end - at] = self._buffer[at:end]
        self._filled = end - at
        if frames and self._transport is not None:
            self._transport.write(_REPLY * frames)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(FixedReply, "127.0.0.1", 0)
    print("ready", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
