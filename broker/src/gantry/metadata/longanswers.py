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
        self._chunks: list[bytes] = []  # pieces that are joined already, so that the end joins few
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
        if len(self._pieces) == _PIECES_AT_ONCE:
            self._join()
            await asyncio.sleep(0)

    def joined(self, head: bytes, tail: bytes) -> bytes:
        """The body: the pieces with commas between them."""
        return b"".join((head, *self.taken(), tail))

    def taken(self) -> list[bytes]:
        """Return what `joined` puts between head and tail, in chunks; pieces that follow belong to another part."""
        if self._pieces:
            self._join()
        chunks, self._chunks = self._chunks, []
        return chunks

    def _join(self) -> None:
        text = b",".join(self._pieces)
        self._chunks.append(b"," + text if self._chunks else text)
        self._pieces.clear()


Entries = Iterable[tuple[str, object]]


async def table(head: Mapping[str, object], name: str, entries: Entries, instead: str) -> bytes:
    """The body of a document that has, beside its head, one table with many entries."""
    return await tables(head, {name: entries}, instead)


async def tables(head: Mapping[str, object], large: Mapping[str, Entries], instead: str) -> bytes:
    """The body of a document that has, beside its head, these tables with many entries."""
    answer, chunks = LongAnswer(instead), [b"{", bodies.dumps(head)[1:-1]]
    for name, entries in large.items():
        for key, value in entries:
            await answer.add(bodies.member(key, value))
        between = b"," if len(chunks[-1]) > 0 else b""
        chunks += [between + bodies.dumps(name) + b":{", *answer.taken(), b"}"]
    return b"".join([*chunks, b"}"])
