"""The frames of a replication link (port 10912); broker/docs/replication.md is normative.

A link begins with the slave's preamble of 40 bytes: a magic of eight, which no RocketMQ slave can send, because its
first word is a log offset and begins with a zero byte, and 32 bytes of chance.  Everything behind it, both ways, is

    size  u32    of what follows
    kind  u8
    body  size - 1 bytes

with integers big-endian.  Frames without a fixed form carry JSON.  Bodies come from the network: whatever does not fit
is MalformedHaError, and a size beyond the bound is found before a byte of the body is waited for.
"""

from __future__ import annotations

import enum
import json
from struct import Struct
from typing import NamedTuple

MAGIC = b"GMQrepl\x01"
NONCE_BYTES = 32
PROOF_BYTES = 32
PREAMBLE_BYTES = len(MAGIC) + NONCE_BYTES
HEAD = Struct(">IB")
SIZE_BYTES = 4
# Largest frame before the handshake is done, and largest frame that a slave may send at any time.
TALK_BYTES_MAX = 256 << 10
# A chunk holds one record at least, and those are as long as a frame of a producer may be.
FRAME_BYTES_MAX = 17 << 20

_MARKS = Struct(">iqqq")
_BEAT = Struct(">qqqq")
_ACK = Struct(">qqqq")
_NUMBER = Struct(">q")
CHUNK_HEAD_BYTES = HEAD.size + _MARKS.size


class MalformedHaError(ValueError):
    """Bytes that are no frame of ours; names the expected and the found."""


class FrameType(enum.IntEnum):
    """The kinds of frames, by the number in a frame's fifth byte."""

    CHALLENGE = 1  # master: its nonce, its proof
    HELLO = 2  # slave: its proof, who it is and what it has
    WELCOME = 3  # master: its proof, who it is and where to begin
    REFUSED = 4  # master: why not, the last frame of a link
    METADATA = 5  # master: numbered changes of topics, groups, offsets
    CHUNK = 6  # master: whole records
    BEAT = 7  # master: marks, when there is nothing else to say
    ACK = 8  # slave: what it has
    LEAVE = 9  # slave: it stops on purpose
    COMMITS = 10  # slave: consumer offsets that were committed there
    PROMISE = 11  # master: promise this epoch, it may be yours
    PROMISED = 12  # slave: it is on the disk, and this link is over


class Chunk(NamedTuple):
    """Whole records from a log offset on, and the master's marks."""

    epoch: int
    offset: int
    confirmed: int
    log_start: int
    records: memoryview


class Beat(NamedTuple):
    """The master's marks, and its clock when it sent them (ns), which the next acknowledgement repeats."""

    written: int
    confirmed: int
    log_start: int
    clock_ns: int = 0


class Ack(NamedTuple):
    """What a slave has: written; held, as its flush policy counts; metadata changes on its disk.

    echo: the clock of the last beat that it received.
    """

    written: int
    held: int
    metadata: int
    echo: int = 0


def frame(kind: FrameType, body: bytes = b"") -> bytes:
    """A frame of any kind."""
    return HEAD.pack(1 + len(body), kind) + body


def chunk_head(epoch: int, offset: int, confirmed: int, log_start: int, count: int) -> bytes:
    """The frame up to its records, `count` bytes of which follow."""
    return HEAD.pack(1 + _MARKS.size + count, FrameType.CHUNK) + _MARKS.pack(epoch, offset, confirmed, log_start)


def beat(written: int, confirmed: int, log_start: int, clock_ns: int = 0) -> bytes:
    """Encode a BEAT frame with the master's marks, log offsets in bytes, and its clock in nanoseconds."""
    return frame(FrameType.BEAT, _BEAT.pack(written, confirmed, log_start, clock_ns))


def ack(written: int, held: int, metadata: int, echo: int = 0) -> bytes:
    """Encode an ACK frame: written and held log offsets, the number of the last metadata change, the beat's clock."""
    return frame(FrameType.ACK, _ACK.pack(written, held, metadata, echo))


def promise(kind: FrameType, epoch: int) -> bytes:
    """A PROMISE or a PROMISED."""
    return frame(kind, _NUMBER.pack(epoch))


def metadata(number: int, entries: object) -> bytes:
    """A METADATA: `number` is that of its last change."""
    return frame(FrameType.METADATA, _NUMBER.pack(number) + dumps(entries))


def size_of(head: bytes | bytearray | memoryview, bytes_max: int) -> int:
    """How many bytes a frame has in all, by its first four."""
    size = int.from_bytes(head[:SIZE_BYTES], "big")
    if not 1 <= size <= bytes_max:
        raise MalformedHaError(f"a frame claims {size} bytes, expected 1 to {bytes_max}")
    return SIZE_BYTES + size


def kind_of(number: int) -> FrameType:
    """The kind in a frame's fifth byte."""
    try:
        return FrameType(number)
    except ValueError as error:
        raise MalformedHaError(f"a frame of kind {number}, expected {min(FrameType)} to {max(FrameType)}") from error


def read_chunk(body: memoryview) -> Chunk:
    """The body of a CHUNK; its records are a view of the same memory."""
    if len(body) <= _MARKS.size:
        raise MalformedHaError(f"a chunk of {len(body)} bytes, expected more than {_MARKS.size}")
    epoch, offset, confirmed, log_start = _MARKS.unpack_from(body)
    return Chunk(epoch, offset, confirmed, log_start, body[_MARKS.size :])


def read_beat(body: memoryview) -> Beat:
    """The body of a BEAT."""
    return Beat(*_fixed(_BEAT, body, "beat"))


def read_ack(body: memoryview) -> Ack:
    """The body of an ACK."""
    found = Ack(*_fixed(_ACK, body, "acknowledgement"))
    if not 0 <= found.held <= found.written:
        raise MalformedHaError(f"an acknowledgement of {found.held}, of which {found.written} are written")
    return found


def read_promise(body: memoryview) -> int:
    """The body of a PROMISE or a PROMISED: the epoch."""
    return _fixed(_NUMBER, body, "promise")[0]


def read_metadata(body: memoryview) -> tuple[int, list[object]]:
    """The body of a METADATA: the number of its last change, and the changes."""
    if len(body) < _NUMBER.size:
        raise MalformedHaError(f"metadata of {len(body)} bytes, expected {_NUMBER.size} at least")
    entries = _loads(bytes(body[_NUMBER.size :]))
    if not isinstance(entries, list):
        raise MalformedHaError(f"metadata: expected an array, found a {type(entries).__name__}")
    return _NUMBER.unpack_from(body)[0], entries


def read_proven(body: memoryview) -> tuple[bytes, bytes]:
    """Split a body into the proof and the bytes that it proves."""
    if len(body) < PROOF_BYTES:
        raise MalformedHaError(f"a proof of {len(body)} bytes, expected {PROOF_BYTES} at least")
    return bytes(body[:PROOF_BYTES]), bytes(body[PROOF_BYTES:])


def dumps(value: object) -> bytes:
    """Encode a value as the JSON of a frame's body."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def loads_object(data: bytes) -> dict[str, object]:
    """A JSON object, or MalformedHaError."""
    value = _loads(data)
    if not isinstance(value, dict):
        raise MalformedHaError(f"expected a JSON object, found a {type(value).__name__}")
    return value


def _loads(data: bytes) -> object:
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedHaError(f"not JSON: {str(error)[:80]}") from error
    return found


def _fixed(form: Struct, body: memoryview, what: str) -> tuple[int, ...]:
    if len(body) != form.size:
        raise MalformedHaError(f"a {what} of {len(body)} bytes, expected {form.size}")
    return form.unpack(body)
