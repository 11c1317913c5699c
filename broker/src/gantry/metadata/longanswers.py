"""Answers that list everything: made in slices, and no longer than a frame.

    answer = LongAnswer("ask topic by topic")
    for ...:
        await answer.add(piece)
    body = answer.joined(b'{"table":{', b"}}")

Other requests are handled after each slice, so tables may change while they are listed: iterate over a copy of the
keys.  An entry costs some ten microseconds to encode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from gantry.errors import RefusedError
from gantry.wire import bodies
from gantry.wire.codes import ResponseCode

# A frame has 16 MiB, its header included.
ANSWER_BYTES_MAX = 15 << 20
_PIECES_AT_ONCE = 32


class LongAnswer:
    """The pieces of one body; `instead` tells the client what to ask when there are too many."""

    def __init__(self, instead: str) -> None:
        self._instead = instead
        self._pieces: list[bytes] = []
        self._bytes = 0

    async def add(self, piece: bytes) -> None:
        """Add a piece, and let other tasks run now and then; RefusedError when the body becomes too long."""
        self._pieces.append(piece)
        self._bytes += len(piece) + 1
        if self._bytes > ANSWER_BYTES_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the answer has more than {ANSWER_BYTES_MAX} bytes, which no frame holds; {self._instead}",
            )
        if len(self._pieces) % _PIECES_AT_ONCE == 0:
            await asyncio.sleep(0)

    def joined(self, head: bytes, tail: bytes) -> bytes:
        """The body: the pieces with commas between them."""
        return head + b",".join(self._pieces) + tail


async def table(head: Mapping[str, object], name: str, entries: Iterable[tuple[str, object]], instead: str) -> bytes:
    """The body of a document that has, beside its head, one table with many entries."""
    answer = LongAnswer(instead)
    for key, value in entries:
        await answer.add(bodies.member(key, value))
    rest = bodies.dumps(head)[1:-1]
    return answer.joined(b"{" + rest + (b"," if rest else b"") + bodies.dumps(name) + b":{", b"}}")

