"""That a request of `/ha/v1`, and its answer, come from somebody who knows the cluster's secret, and come once.

    request   X-Gantry-Time, X-Gantry-Nonce, X-Gantry-Proof: HMAC-SHA256 over method, path with query, time, nonce, body
    answer    X-Gantry-Proof: HMAC-SHA256 over the request's nonce, status, body, with the key that was asked with

An election rests on what members answer, so the answers prove themselves too: an address may have gone to somebody
else.  A request names the member that it is meant for, in its query or body, so none is good at two doors.

A request is taken while its time is within `WINDOW_MS` of the taker's own and its nonce was not seen; nonces are kept
for as long as they could be taken again.  Only who knows the secret gets a nonce into that table, and full means a
refusal, not forgetting.  The taker's time is one that never goes back, else a forgotten nonce would be
good again; it need not be the right time, for a refusal for the time names the taker's, proves it, and the asker asks
again with that.  So no failover depends on clocks that agree.

A taker that starts again has an empty table.  A seal therefore names an epoch, and is done twice without harm; an order
names the taker's life besides (`haapi`), and is refused by any other.

While a secret is changed two keys are good: either is taken, the first is the one to ask with.  A member that reads
another secret while it runs (`Keys.renew`) takes the one with which it asked before as well, until its process ends:
other members, and anyone who asks them, read the new one some time earlier or later.
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
    """A request as it travels; `path` with the query, encoded as it is sent."""

    method: str
    path: str
    body: bytes = b""


@dataclass(slots=True)
class Keys:
    """The secret, and during a change the other one that is good as well; shared by all who prove or check."""

    first: bytes
    second: bytes = b""
    former: bytes = b""  # what was asked with before the last change

    @property
    def good(self) -> tuple[bytes, ...]:
        """Every key that is taken."""
        return (self.first, *(each for each in (self.second, self.former) if each))

    def renew(self, found: Keys) -> bool:
        """Take over what the file says now; whether that changes anything."""
        if (found.first, found.second) == (self.first, self.second):
            return False
        if found.first != self.first:
            self.former = self.first
        self.first, self.second = found.first, found.second
        return True

    def ask(self, said: Said, nonce: bytes, time_ms: int) -> dict[str, str]:
        """The headers of a request."""
        headers = {TIME: str(time_ms), NONCE: nonce.hex()}
        return headers | {PROOF: _ask(self.first, said, headers[TIME], headers[NONCE])}

    def is_answer(self, nonce: bytes, status: int, body: bytes, proof: str) -> bool:
        """Whether this answer was made for our request, by somebody who knows the secret."""
        return hmac.compare_digest(prove_answer(self.first, nonce.hex(), status, body).encode(), proof.encode())


def prove_answer(key: bytes, nonce: str, status: int, body: bytes) -> str:
    """The proof that goes with an answer."""
    return _digest(key, _ANSWER, nonce.encode(), str(status).encode(), body)


def _ask(key: bytes, said: Said, time: str, nonce: str) -> str:
    path = said.path.encode("utf-8", "surrogateescape")  # as it came, from whomever
    return _digest(key, _ASK, said.method.encode(), path, time.encode(), nonce.encode(), said.body)


def _digest(key: bytes, *parts: bytes) -> str:
    """Over each part with its length, so that no byte of one can be taken for another's."""
    joined = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.digest(key, joined, "sha256").hex()


class Pass(NamedTuple):
    """The request is what it says; its answer is proven with this key, for this nonce."""

    key: bytes
    nonce: str


class Turned(NamedTuple):
    """The request is not taken, and why; `proven` when it came from somebody who knows the secret all the same."""

    status: int
    reason: str
    proven: Pass | None = None


class Door:
    """Who is let in; knows the nonces of the last minute."""

    def __init__(self, keys: Keys, window_ms: int = WINDOW_MS, nonces_max: int = NONCES_MAX) -> None:
        self._keys = keys
        self._window_ms = window_ms
        self._nonces_max = nonces_max
        self._until: dict[str, int] = {}  # by nonce, in the order in which they are forgotten

    def __len__(self) -> int:
        return len(self._until)

    def check(self, said: Said, headers: Mapping[str, str], now_ms: int) -> Pass | Turned:
        """Let a request in, or say why not.  `now_ms` never goes back, whatever the wall clock does."""
        time, nonce, proof = (headers.get(name, "") for name in (TIME, NONCE, PROOF))
        if not (_TIME.fullmatch(time) and _NONCE.fullmatch(nonce) and _PROOF.fullmatch(proof)):
            return Turned(401, f"{TIME}, {NONCE} and {PROOF} are needed; ask with the cluster's secret")
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
        # Its time may lie a window ahead, and is good for another one after that.
        self._until[nonce] = now_ms + 2 * self._window_ms
        return proven

    def _forget(self, now_ms: int) -> None:
        while self._until:
            oldest = next(iter(self._until))
            if self._until[oldest] >= now_ms:
                return
            del self._until[oldest]
