"""A Secret's field that holds keys, one a line; pure.

During a change of a key there is more than one line, and the first is the one that is used to ask or to sign.
Where `comment` is given, lines that begin with it are ignored.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from gantry.replication.handshake import SECRET_BYTES_MIN


def field(secret: Mapping[str, Any], name: str, most: int, comment: bytes = b"") -> bytes | str:
    """Return the bytes of a field with 1 to `most` keys, or a text that says what is wrong with it."""
    given = (secret.get("data") or {}).get(name)
    if given is None:
        return f"it has no field {name!r}"
    try:
        found = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError, TypeError):
        return f"its field {name!r} is no base64"
    keys = lines(found, comment)
    if not keys:
        return f"its field {name!r} is empty"
    if len(keys) > most:
        wanted = "a key, or two of them" if most == 2 else f"1 to {most}, one a line"
        return f"its field {name!r} has {len(keys)} lines, expected {wanted}"
    if short := [line for line in keys if len(line) < SECRET_BYTES_MIN]:
        return f"its field {name!r} has a key of {len(short[0])} bytes, expected {SECRET_BYTES_MIN} or more"
    return found


def lines(text: bytes, comment: bytes = b"") -> list[bytes]:
    """Split a field into keys, like brokers do (`gantry.broker.role.membership.read_keys`)."""
    found = (line.strip() for line in text.split(b"\n"))
    return [line for line in found if line and not (comment and line.startswith(comment))]
