"""Requests as a client would make them, for handlers that take a `Command`."""

from __future__ import annotations

from gantry.leaves import frames
from gantry.wire.bodies import dumps

_OPAQUE = 4711


def request(code: int, body: bytes | dict[str, object] = b"", **ext: str | int) -> frames.Command:
    """A command with these header fields; a dict body becomes JSON."""
    content = body if isinstance(body, bytes) else dumps(body)
    return frames.Command(
        int(code), language=0, opaque=_OPAQUE, ext={name: str(value) for name, value in ext.items()}, body=content
    )
