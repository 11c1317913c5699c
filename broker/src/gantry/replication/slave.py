"""The slave's side of a link as a state machine: frames in, actions out.

    opened -> challenged -> welcomed -> following
                                     -> cut | begin: the link ends, the store is closed, changed and opened again

The machine knows the protocol and what may be acknowledged; it touches neither socket nor disk.  The caller carries the
actions out in their order and reports the results: `ready` when the welcome is on the disk, `appended`, and to the
replica what it holds and keeps.  `ack()` then returns the bytes to send, if there are any.

Frames of the master are checked: a frame out of order, a chunk that does not begin at the end of our log, or a chunk of
another epoch ends the link.  A link that ended is never used again.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gantry.replication.handshake import Hello, ProofPurpose, Step, Welcome, is_proven, prove, read_welcome
from gantry.replication.haproof import Keys
from gantry.replication.replica import Replica
from gantry.wire import ha
from gantry.wire.ha import Ack, FrameType, MalformedHaError

# Bytes that are written and not yet held matter only to the master's window, so they are acknowledged in larger steps.
_WORTH_BYTES = 1 << 20


class SendToMaster(NamedTuple):
    """Action: send these bytes to the master."""

    data: bytes


class Adopt(NamedTuple):
    """Put the welcome on the disk, then call ready(): the slave follows from its end on."""

    welcome: Welcome


class Reshape(NamedTuple):
    """The log has to be cut, or begun at another offset, before it can follow; the link has ended."""

    welcome: Welcome


class Append(NamedTuple):
    """Write these records at this offset, then call appended()."""

    offset: int
    records: memoryview


class Apply(NamedTuple):
    """Apply these changes of metadata, then call `replica.keep` when they are durable."""

    number: int
    changes: list[object]


class MasterMarks(NamedTuple):
    """The master's marks: the confirmed offset, and where its log begins and ends."""

    confirmed: int
    log_start: int
    written: int


class PromiseRequest(NamedTuple):
    """Put the promise of this epoch on the disk, then call promised(); the master asks for it."""

    epoch: int


class MasterLinkEnded(NamedTuple):
    """The link has ended. is_final: the next one fails too until an operator acts."""

    reason: str
    is_final: bool = False


Action = SendToMaster | Adopt | Reshape | Append | Apply | MasterMarks | PromiseRequest | MasterLinkEnded


class _State(Enum):
    OPENED = "opened"
    CHALLENGED = "challenged"
    WELCOMED = "welcomed"
    FOLLOWING = "following"
    ENDED = "ended"


class Following:
    """State of one link; `nonce`: 32 random bytes."""

    def __init__(self, keys: Keys, nonce: bytes, hello: Hello, held: int) -> None:
        assert len(nonce) == ha.NONCE_BYTES
        self.began = hello.end
        self.replica = Replica(hello.end, held, hello.confirmed)
        self.epoch = 0
        self._keys = keys
        self._nonce = nonce
        self._master_nonce = b""
        self._hello = hello
        self._state = _State.OPENED
        self._last_ack: Ack | None = None

    @property
    def is_following(self) -> bool:
        """Whether the handshake is complete and chunks are accepted."""
        return self._state is _State.FOLLOWING

    def preamble(self) -> bytes:
        """Return the first bytes to send."""
        return ha.MAGIC + self._nonce

    def frame(self, kind: FrameType, body: memoryview) -> list[Action]:
        """Take a frame. Return the actions."""
        try:
            return self._frame(kind, body)
        except ValueError as error:
            return self._end(f"the master sent an invalid frame: {error}")

    def _frame(self, kind: FrameType, body: memoryview) -> list[Action]:
        if kind is FrameType.REFUSED:
            return self._end(f"the master refuses: {bytes(body).decode('utf-8', 'replace')}", is_final=True)
        if self._state is _State.FOLLOWING:
            if kind is FrameType.CHUNK:
                return self._chunk(ha.read_chunk(body))
            if kind is FrameType.BEAT:
                beat = ha.read_beat(body)
                self.replica.echo = beat.clock_ns
                return [self._marks(beat.written, beat.confirmed, beat.log_start)]
            if kind is FrameType.PROMISE:
                return self._asked_to_promise(ha.read_promise(body))
            if kind is FrameType.METADATA:
                number, changes = ha.read_metadata(body)
                return [Apply(number, changes)] if self.replica.change(number) else []
        elif self._state is _State.OPENED and kind is FrameType.CHALLENGE:
            return self._challenged(*ha.read_proven(body))
        elif self._state is _State.CHALLENGED and kind is FrameType.WELCOME:
            return self._welcomed(*ha.read_proven(body))
        raise MalformedHaError(f"{kind.name} to a slave that is {self._state.value}")

    def _challenged(self, proof: bytes, nonce: bytes) -> list[Action]:
        if len(nonce) != ha.NONCE_BYTES:
            raise MalformedHaError(f"a nonce of {len(nonce)} bytes, expected {ha.NONCE_BYTES}")
        if not is_proven(proof, self._keys, ProofPurpose.CHALLENGE, self._nonce, nonce):
            return self._end("the master does not know our secret; set the same replication secret on both", True)
        self._master_nonce = nonce
        self._state = _State.CHALLENGED
        said = self._hello.encode()
        return [SendToMaster(
            ha.frame(FrameType.HELLO, prove(self._keys.first, ProofPurpose.HELLO, self._nonce, nonce, said) + said)
        )]

    def _welcomed(self, proof: bytes, said: bytes) -> list[Action]:
        if not is_proven(proof, self._keys, ProofPurpose.WELCOME, self._nonce, self._master_nonce, said):
            raise MalformedHaError("a welcome with a wrong proof")
        welcome = read_welcome(said)
        if welcome.step is not Step.FOLLOW:
            self._state = _State.ENDED
            if welcome.step is Step.BEGIN and self._hello.start != self._hello.end:
                return self._end("the master asks to begin a new log, but this log is not empty")
            if welcome.step is Step.CUT and welcome.at < self._hello.confirmed:
                return self._end(f"the master would cut at {welcome.at} a log confirmed up to {self._hello.confirmed}")
            return [Reshape(welcome)]
        if welcome.at != self.replica.written:
            raise MalformedHaError(f"a welcome at {welcome.at}, our log ends at {self.replica.written}")
        self.epoch = welcome.epoch
        self._state = _State.WELCOMED
        return [Adopt(welcome)]

    def _chunk(self, chunk: ha.Chunk) -> list[Action]:
        if chunk.epoch != self.epoch:
            raise MalformedHaError(f"a chunk of epoch {chunk.epoch}, this link is of {self.epoch}")
        if chunk.offset != self.replica.written:
            raise MalformedHaError(f"a chunk at {chunk.offset}, our log ends at {self.replica.written}")
        return [Append(chunk.offset, chunk.records), self._marks(0, chunk.confirmed, chunk.log_start)]

    def _marks(self, written: int, confirmed: int, log_start: int) -> MasterMarks:
        # The bytes of a chunk count after they are appended, which is the action before this one.
        self.replica.confirm(confirmed)
        return MasterMarks(confirmed, log_start, written)

    def _asked_to_promise(self, epoch: int) -> list[Action]:
        if epoch <= self.epoch:
            raise MalformedHaError(f"the promise of epoch {epoch}, this link is of {self.epoch}")
        return [PromiseRequest(epoch)]

    def promised(self, epoch: int) -> bytes:
        """Note that the promise is on the disk. Return the last bytes to send on this link."""
        is_time = self._state is _State.FOLLOWING
        self._state = _State.ENDED
        return ha.promise(FrameType.PROMISED, epoch) if is_time else b""

    def ready(self) -> None:
        """Note that the welcome is on the disk; the next acknowledgement makes the master send its log."""
        assert self._state is _State.WELCOMED
        self._state = _State.FOLLOWING

    def appended(self, start: int, end: int) -> None:
        """Note that the records are in the log."""
        self.replica.append(start, end)

    def ack(self) -> bytes:
        """Return an acknowledgement; empty when it would contain nothing new."""
        if self._state is not _State.FOLLOWING:
            return b""
        found, last = self.replica.ack, self._last_ack
        if last is not None and found[1:] == last[1:] and found.written - last.written < _WORTH_BYTES:
            return b""
        self._last_ack = found
        return ha.ack(*found)

    def beat(self) -> bytes:
        """Return an acknowledgement even without anything new, as a sign of life."""
        if self._state is not _State.FOLLOWING:
            return b""
        self._last_ack = self.replica.ack
        return ha.ack(*self._last_ack)

    def _end(self, reason: str, is_final: bool = False) -> list[Action]:
        self._state = _State.ENDED
        return [MasterLinkEnded(reason, is_final)]
