"""The master's side of a link as a state machine: bytes and frames in, actions out; and what may be sent next.

    opened -> challenged -> welcomed -> fed -> ended

The slave is fed from its end on: chunks of whole records, each behind the changes of metadata that were made before its
last record was appended.  Bytes in flight are those that were sent and not yet acknowledged as written.  They are at
most a window, so that a slow slave costs the master neither memory nor its producers' bandwidth; one chunk is always
allowed, however long its record is.

A peer has to prove that it knows the secret before anything it sends is used.  An acknowledgement of bytes that were
not sent ends the link.  A slave of RocketMQ is recognised by its first byte: it begins with a log offset.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from gantry.replication.handshake import (
    Hello,
    No,
    ProofPurpose,
    Step,
    Welcome,
    is_proven,
    prove,
    read_hello,
)
from gantry.replication.haproof import Keys
from gantry.wire import ha
from gantry.wire.ha import Ack, FrameType, MalformedHaError

# A loopback or a 10 Gbit/s network with a round trip of a millisecond needs a megabyte; disks that stall need more.
WINDOW_BYTES = 8 << 20


class SendToSlave(NamedTuple):
    """Action: send these bytes to the slave."""

    data: bytes


class Welcomed(NamedTuple):
    """The slave was accepted; it is sent the log after its first acknowledgement."""

    hello: Hello


class Acked(NamedTuple):
    """Action: note the slave's acknowledgement."""

    ack: Ack


class Left(NamedTuple):
    """The slave stops on purpose."""


class Commits(NamedTuple):
    """Consumer offsets that were committed on the slave."""

    body: bytes


class Promised(NamedTuple):
    """The slave has the promise of this epoch on its disk, and accepts nothing of a lower epoch any more."""

    epoch: int


class SlaveLinkEnded(NamedTuple):
    """The link has ended; actions before this one are still carried out."""

    reason: str


Action = SendToSlave | Welcomed | Acked | Left | Commits | Promised | SlaveLinkEnded
Judge = Callable[[Hello], Welcome | No]


class _State(Enum):
    OPENED = "opened"
    CHALLENGED = "challenged"
    WELCOMED = "welcomed"
    FED = "fed"
    ENDED = "ended"


class Feeding:
    """State of one link. `nonce`: 32 random bytes; `judgement` returns the answer to a hello."""

    def __init__(self, keys: Keys, nonce: bytes, judgement: Judge, window_bytes: int = WINDOW_BYTES) -> None:
        assert len(nonce) == ha.NONCE_BYTES
        self.hello: Hello | None = None
        self.position = 0  # log offset of the next chunk
        self.metadata = 0  # number of the last change that was sent
        self.acked = Ack(0, 0, 0)
        self._keys = keys
        self._nonce = nonce
        self._slave_nonce = b""
        self._judgement = judgement
        self._window_bytes = window_bytes
        self._state = _State.OPENED

    @property
    def is_fed(self) -> bool:
        """Whether the slave takes chunks."""
        return self._state is _State.FED

    @property
    def is_known(self) -> bool:
        """Whether the slave has authenticated and was accepted."""
        return self._state in (_State.WELCOMED, _State.FED)

    @property
    def has_room(self) -> bool:
        """Whether another chunk may be sent now."""
        return self._state is _State.FED and self.position - self.acked.written < self._window_bytes

    def preamble(self, data: bytes) -> list[Action]:
        """Take the first PREAMBLE_BYTES of the link, or fewer that are wrong already. Return the actions."""
        fault = preamble_fault(data)
        if fault:
            return self._end(fault)
        assert len(data) == ha.PREAMBLE_BYTES and self._state is _State.OPENED
        self._slave_nonce = data[len(ha.MAGIC) :]
        self._state = _State.CHALLENGED
        proof = prove(self._keys.first, ProofPurpose.CHALLENGE, self._slave_nonce, self._nonce)
        return [SendToSlave(ha.frame(FrameType.CHALLENGE, proof + self._nonce))]

    def frame(self, kind: FrameType, body: memoryview) -> list[Action]:
        """Take a frame. Return the actions."""
        try:
            return self._frame(kind, body)
        except ValueError as error:
            return self._end(f"it sent an invalid frame: {error}")

    def _frame(self, kind: FrameType, body: memoryview) -> list[Action]:
        if self.is_known:
            if kind is FrameType.ACK:
                return self._acked(ha.read_ack(body))
            if kind is FrameType.LEAVE and not body:
                return [Left(), *self._end("the slave stops")]
            if kind is FrameType.COMMITS:
                return [Commits(bytes(body))]
            if kind is FrameType.PROMISED:
                return [Promised(ha.read_promise(body)), *self._end("the slave promised the next epoch")]
        elif self._state is _State.CHALLENGED and kind is FrameType.HELLO:
            return self._greeted(*ha.read_proven(body))
        raise MalformedHaError(f"{kind.name} on a link that is {self._state.value}")

    def _greeted(self, proof: bytes, said: bytes) -> list[Action]:
        if not is_proven(proof, self._keys, ProofPurpose.HELLO, self._slave_nonce, self._nonce, said):
            return self._end("it does not know the secret; set the same replication secret on both")
        hello = read_hello(said)
        answer = self._judgement(hello)
        if isinstance(answer, No):
            return [SendToSlave(ha.frame(FrameType.REFUSED, answer.reason.encode())), *self._end(answer.reason)]
        welcome = answer.encode()
        out = SendToSlave(
            ha.frame(
                FrameType.WELCOME,
                prove(self._keys.first, ProofPurpose.WELCOME, self._slave_nonce, self._nonce, welcome) + welcome,
            )
        )
        if answer.step is not Step.FOLLOW:
            return [out, *self._end(f"the slave has to {answer.step.value} its log at {answer.at} first")]
        self.hello = hello
        self.position = answer.at
        self.acked = Ack(answer.at, 0, 0)
        self._state = _State.WELCOMED
        return [out, Welcomed(hello)]

    def _acked(self, ack: Ack) -> list[Action]:
        if not self.acked.written <= ack.written <= self.position or ack.held < self.acked.held:
            raise MalformedHaError(f"{ack} after {self.acked}, sent up to {self.position}")
        if not self.acked.metadata <= ack.metadata <= self.metadata:
            raise MalformedHaError(f"metadata {ack.metadata} after {self.acked.metadata}, sent up to {self.metadata}")
        self._state = _State.FED
        self.acked = ack
        return [Acked(ack)]

    def sent(self, start: int, end: int) -> None:
        """Note that a chunk was sent; the next one begins at `end`."""
        assert start == self.position and end > start and self.is_fed
        self.position = end

    def told(self, number: int) -> None:
        """Note that changes of metadata up to this one were sent."""
        self.metadata = number

    def refuse(self, reason: str) -> list[Action]:
        """End the link for a reason of the master's; an authenticated peer is told the reason."""
        told: list[Action] = [SendToSlave(ha.frame(FrameType.REFUSED, reason.encode()))] if self.is_known else []
        return [*told, *self._end(reason)]

    def _end(self, reason: str) -> list[Action]:
        self._state = _State.ENDED
        return [SlaveLinkEnded(reason)]


def preamble_fault(data: bytes) -> str:
    """Return what is wrong with the first bytes of a link, as many as there are; empty: nothing so far."""
    if data[:1] == b"\0":
        return (
            "a RocketMQ slave reports its offset; RocketMQ's slaves cannot follow GantryMQ's replication, "
            "run GantryMQ as the slave"
        )
    if not ha.MAGIC.startswith(data[: len(ha.MAGIC)]):
        return f"it does not speak this protocol, it began with {bytes(data[:8])!r}"
    return ""
