"""Authentication of `/ha/v1`: requests and answers are signed with the cluster's secret, and requests are taken once.

    request   X-Gantry-Time, X-Gantry-Nonce, X-Gantry-Proof: HMAC-SHA256 over method, path with query, time, nonce, body
    answer    X-Gantry-Proof: HMAC-SHA256 over the request's nonce, status, body, with the key that was asked with

An election depends on the members' answers, so answers carry a proof too: an address may belong to another process by
now.  A request names its member in the query or body, so no other member takes it.

A request is taken while its time is within `WINDOW_MS` of the receiver's and its nonce was not seen before.  A nonce is
kept for as long as its request could be taken again.  Only requests with a valid proof enter that table; when it is
full, requests are refused, and no nonce is dropped.  The receiver's clock is monotonic, else a dropped nonce would be
valid again.  It need not be right: a refusal for the time names the receiver's time, with a proof, and the sender asks
again with that.  So no failover depends on synchronised clocks.

A receiver that restarts has an empty table.  A seal therefore names an epoch, and repeating it is harmless; an order
also names the receiver's life (`haapi`), and is refused after a restart.

While the secret is being changed two keys are valid: either is accepted, requests use the first.  A member that reads
another secret while it runs (`Keys.renew`) also accepts its former first key until its process ends, because other
members and clients read the new secret earlier or later.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

TIME, NONCE, PROOF = "X-Gantry-Time", "X-Gantry-Nonce", "X-Gantry-Proof"
NONCE_BYTES = 16
WINDOW_MS = 30_000
NONCES_MAX = 10_000  # a coordinator asks forty times a second at most, and the table holds a minute
_ASK, _ANSWER = b"gantry ha ask 1", b"gantry ha answer 1"
_TIME = re.compile(r"\d{1,15}", re.ASCII)
_NONCE = re.compile(r"[0-9a-f]{32}", re.ASCII)
_PROOF = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Said(NamedTuple):
    """A request as it is sent; `path` includes the encoded query."""

    method: str
    path: str
    body: bytes = b""


@dataclass(slots=True)
class Keys:
    """The secret, and a second valid key while it is being changed; shared by all that sign or check."""

    first: bytes
    second: bytes = b""
    former: bytes = b""  # the first key before the last change

    @property
    def good(self) -> tuple[bytes, ...]:
        """Every key that is accepted."""
        return (self.first, *(each for each in (self.second, self.former) if each))

    def renew(self, found: Keys) -> bool:
        """Take over the keys of the file. Return whether they changed."""
        if (found.first, found.second) == (self.first, self.second):
            return False
        if found.first != self.first:
            self.former = self.first
        self.first, self.second = found.first, found.second
        return True

    def ask(self, said: Said, nonce: bytes, time_ms: int) -> dict[str, str]:
        """Return the headers of a request."""
        headers = {TIME: str(time_ms), NONCE: nonce.hex()}
        return headers | {PROOF: _ask(self.first, said, headers[TIME], headers[NONCE])}

    def is_answer(self, nonce: bytes, status: int, body: bytes, proof: str) -> bool:
        """Return whether this answer was made for our request, with our key."""
        return hmac.compare_digest(prove_answer(self.first, nonce.hex(), status, body).encode(), proof.encode())


def prove_answer(key: bytes, nonce: str, status: int, body: bytes) -> str:
    """Return the proof that is sent with an answer."""
    return _digest(key, _ANSWER, nonce.encode(), str(status).encode(), body)


def _ask(key: bytes, said: Said, time: str, nonce: str) -> str:
    path = said.path.encode("utf-8", "surrogateescape")  # unchecked bytes of the peer
    return _digest(key, _ASK, said.method.encode(), path, time.encode(), nonce.encode(), said.body)


def _digest(key: bytes, *parts: bytes) -> str:
    """Return the HMAC over the parts, each with its length, so that bytes cannot move from one part to the next."""
    joined = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.digest(key, joined, "sha256").hex()


class Pass(NamedTuple):
    """An accepted request; its answer is signed with this key, for this nonce."""

    key: bytes
    nonce: str


class Turned(NamedTuple):
    """A refused request, and why; `proven` is set when its proof was valid all the same."""

    status: int
    reason: str
    proven: Pass | None = None


class Door:
    """Checks requests, and keeps the nonces of the last minute."""

    def __init__(self, keys: Keys, window_ms: int = WINDOW_MS, nonces_max: int = NONCES_MAX) -> None:
        self._keys = keys
        self._window_ms = window_ms
        self._nonces_max = nonces_max
        self._until: dict[str, int] = {}  # by nonce, in the order in which they are forgotten

    def __len__(self) -> int:
        return len(self._until)

    def check_head(self, headers: Mapping[str, str]) -> Turned | None:
        """Return why a request is refused whatever its body says; None: its body is needed to know."""
        time, nonce, proof = (headers.get(name, "") for name in (TIME, NONCE, PROOF))
        if not (_TIME.fullmatch(time) and _NONCE.fullmatch(nonce) and _PROOF.fullmatch(proof)):
            return Turned(401, f"{TIME}, {NONCE} and {PROOF} are needed; ask with the cluster's secret")
        return None

    def check(self, said: Said, headers: Mapping[str, str], now_ms: int) -> Pass | Turned:
        """Return whether a request is accepted, or why not. `now_ms` is monotonic."""
        if (refused := self.check_head(headers)) is not None:
            return refused
        time, nonce, proof = (headers.get(name, "") for name in (TIME, NONCE, PROOF))
        key = next((key for key in self._keys.good if hmac.compare_digest(_ask(key, said, time, nonce), proof)), None)
        if key is None:
            return Turned(401, "the proof does not fit the request; set the same replication secret on both sides")
        proven = Pass(key, nonce)
        if abs(int(time) - now_ms) > self._window_ms:
            return Turned(401, f"the request is of {time}, here it is {now_ms}; ask again with this time", proven)
        self._forget(now_ms)
        if nonce in self._until:
            return Turned(401, "the request was here before; ask with a new nonce", proven)
        if len(self._until) >= self._nonces_max:
            return Turned(429, f"{self._nonces_max} requests within a minute; ask later", proven)
        # The request's time may lie one window ahead, and it is acceptable for another window after that.
        self._until[nonce] = now_ms + 2 * self._window_ms
        return proven

    def _forget(self, now_ms: int) -> None:
        while self._until:
            oldest = next(iter(self._until))
            if self._until[oldest] >= now_ms:
                return
            del self._until[oldest]
