"""Records one after the other, as a broker answers a pull."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gantry.leaves import frames, records

_HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])


@dataclass(frozen=True)
class Stored:
    """One message; its place in the queue is its place in the run."""

    body: bytes = b""
    properties: bytes = b"UNIQ_KEY\x01u\x02"
    topic: str = "t"
    born_host: bytes = _HOST
    flag: int = 0
    sys_flag: int = 0
    born_ms: int = 1
    reconsume_times: int = 0


def run(stored: Sequence[Stored], offsets: Sequence[int] | None = None) -> bytes:
    """The records; queue offsets from 0 on if they are not given."""
    sends = []
    for offset, one in zip(offsets or range(len(stored)), stored, strict=True):
        each = frames.Send(topic=one.topic, body=one.body, born_host=one.born_host, properties=one.properties)
        each.queue_offset = offset
        each.flag, each.sys_flag, each.born_ms = one.flag, one.sys_flag, one.born_ms
        each.reconsume_times = one.reconsume_times
        sends.append(each)
    out = bytearray(sum(records.size_of(send, len(_HOST)) for send in sends))
    records.encode_run(out, 0, 1000, sends, 2, _HOST)
    return bytes(out)
