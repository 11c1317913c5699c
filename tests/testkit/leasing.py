"""Records for pops, and a scripted cluster that leases messages as a broker does."""

from __future__ import annotations

from gantry.leaves import frames, records


def stored(
    queue_offset: int, *, queue_id: int = 0, topic: str = "T", body: bytes | None = None, properties: bytes = b""
) -> bytes:
    """The bytes of one stored message; its body is its offset unless it is given."""
    text = b"%d" % queue_offset if body is None else body
    send = frames.Send(
        topic=topic, body=text, born_host=bytes(8), group="p", queue_id=queue_id, properties=properties
    )
    send.queue_offset = queue_offset
    out = bytearray(records.size_of(send))
    records.encode_run(out, 0, 1000 * queue_offset, [send], 1, bytes(8))
    return bytes(out)
