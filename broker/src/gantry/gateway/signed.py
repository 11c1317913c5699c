"""Signed texts that clients keep and bring back, such as receipt handles and transaction ids.  Pure.

    <payload> . <tag>      both base64url; the tag is 16 bytes of HMAC-SHA256

A client could otherwise acknowledge another group's messages, or end another topic's transactions, by counting up
numbers.  So the tag covers the purpose and the names (group and topic) that the request has to name as well: a text is
worth nothing for another group.  Any process with the same keys reads the texts of any other.  The first key signs,
all of them are good for reading; `keys` says how they are replaced.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence

_TAG_BYTES = 16
CHARACTERS_MAX = 2048


class SignedTexts:
    """Writes and reads signed texts; `keys` has at least one, the first signs."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        assert keys, "a signature needs a key"
        # Each is copied for a text: that costs a third of beginning with the key.
        self._begun = [hmac.new(key, digestmod="sha256") for key in keys]

    def write(self, payload: str, *purpose: str) -> str:
        """Return the signed text of a payload, for this purpose only."""
        data = payload.encode()
        return f"{_text(data)}.{_text(_tag(self._begun[0], data, purpose))}"

    def read(self, text: str, *purpose: str) -> str | None:
        """Return the payload; None for any text that was not signed for this purpose by one of the keys."""
        if len(text) > CHARACTERS_MAX or not text.isascii():
            return None
        body, _, tag = text.partition(".")
        try:
            data, given = _bytes(body), _bytes(tag)
        except ValueError:
            return None
        if not any(hmac.compare_digest(given, _tag(one, data, purpose)) for one in self._begun):
            return None
        return data.decode()


def _tag(begun: hmac.HMAC, data: bytes, purpose: Sequence[str]) -> bytes:
    named = b"".join([part.encode() + b"\0" for part in purpose])
    whole = begun.copy()
    whole.update(named + data)
    return whole.digest()[:_TAG_BYTES]


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
