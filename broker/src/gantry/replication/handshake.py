"""The handshake of a link: both ends authenticate, and the master decides from which offset the slave follows.

Both ends prove that they know the cluster's secret before any other data is exchanged.  Each sends 32 random bytes and
answers with an HMAC-SHA256 over the name of its message, both nonces and the message.  A proof is valid for one link
and one direction only.  While the secret is being changed both ends accept two keys (`haproof`).

    slave   preamble: magic, nonce
    master  CHALLENGE: nonce, proof
    slave   HELLO: proof, Hello
    master  WELCOME: proof, Welcome         or REFUSED: reason
    slave   first ACK, when the contents of the welcome are on its disk

The master decides.  Logs are equal up to the last point that both tables of epochs share.  The slave follows from
there, cuts its log there first, or is refused with the reason.  Bytes that a slave knows to be confirmed are never cut:
then the master lacks messages, and an operator has to decide.  An empty log is copied from the first byte that the
master still has.

The last `TAIL_BYTES` before a slave's end are compared as well: a folder that was restored by hand may have the right
table and other bytes.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from gantry.model import documents
from gantry.replication.epochs import EpochTable, last_common, table_of
from gantry.replication.haproof import Keys
from gantry.replication.members import MEMBERS_MAX, NUMBER_MAX
from gantry.wire import ha

SECRET_BYTES_MIN = 16
TAIL_BYTES = 4096
_ID_CHARS_MAX = 128


class ProofPurpose(Enum):
    """Which message of the handshake a proof belongs to."""

    CHALLENGE = b"gantry challenge"
    HELLO = b"gantry hello"
    WELCOME = b"gantry welcome"


def prove(secret: bytes, part: ProofPurpose, slave_nonce: bytes, master_nonce: bytes, said: bytes = b"") -> bytes:
    """Return the proof that the sender of `said` knows the secret, on this link."""
    return hmac.digest(secret, part.value + slave_nonce + master_nonce + said, "sha256")


def is_proven(
    proof: bytes, keys: Keys, part: ProofPurpose, slave_nonce: bytes, master_nonce: bytes, said: bytes = b""
) -> bool:
    """Return whether the proof was made with a valid key; takes the same time for every wrong proof."""
    return any(hmac.compare_digest(proof, prove(key, part, slave_nonce, master_nonce, said)) for key in keys.good)


@dataclass(frozen=True, slots=True)
class Hello:
    """What a slave reports about itself.

    place         its ordinal where the group has a register, its brokerId in a static pair
    incarnation   of its disk, -1 in a static pair
    process       id of its process, so that the register can name it as the holder
    tail          CRC-32 of the last bytes of its log, see `tail_range`
    is_full       its disk has no room for the next segment of the log
    """

    cluster_uid: str  # empty: it has none yet
    group: str
    place: int
    store_uid: str
    epochs: EpochTable
    start: int
    end: int
    confirmed: int
    segment_bytes: int
    tail: int = 0
    incarnation: int = -1
    process: str = ""
    is_full: bool = False

    def encode(self) -> bytes:
        """Return the JSON that `read_hello` reads."""
        return ha.dumps(
            {
                "clusterUID": self.cluster_uid,
                "group": self.group,
                "place": self.place,
                "storeUID": self.store_uid,
                "epochs": [list(entry) for entry in self.epochs.entries],
                "start": self.start,
                "end": self.end,
                "confirmed": self.confirmed,
                "segmentBytes": self.segment_bytes,
                "tail": self.tail,
                "incarnation": self.incarnation,
                "process": self.process,
                "diskFull": self.is_full,
            }
        )


def read_hello(said: bytes) -> Hello:
    """Return the hello in these bytes; ValueError when it is invalid."""
    source = ha.loads_object(said)
    found = Hello(
        cluster_uid=_name(source, "clusterUID"),
        group=_name(source, "group"),
        place=documents.integer(source, "place", -1),
        store_uid=_name(source, "storeUID"),
        epochs=epochs_in(source),
        start=documents.integer(source, "start"),
        end=documents.integer(source, "end"),
        confirmed=documents.integer(source, "confirmed"),
        segment_bytes=documents.integer(source, "segmentBytes"),
        tail=documents.integer(source, "tail"),
        incarnation=documents.integer(source, "incarnation", -1),
        process=_name(source, "process"),
        is_full=documents.boolean(source, "diskFull"),
    )
    if not 0 <= found.start <= found.end or not 0 <= found.confirmed <= found.end:
        raise ValueError(f"a log from {found.start} to {found.end}, confirmed up to {found.confirmed}")
    if not found.store_uid:
        raise ValueError("storeUID is missing")
    if not -1 <= found.incarnation <= NUMBER_MAX:
        raise ValueError(f"incarnation {found.incarnation}")
    return found


class Step(Enum):
    """What a slave has to do before it follows."""

    FOLLOW = "follow"  # nothing
    CUT = "cut"  # cut its log at the offset, and connect again
    BEGIN = "begin"  # begin its empty log at the offset, and connect again


@dataclass(frozen=True, slots=True)
class Welcome:
    """The master's answer to a slave that can follow; `at`: the log offset of the step."""

    cluster_uid: str
    epoch: int
    epochs: EpochTable
    step: Step
    at: int

    def encode(self) -> bytes:
        """Return the JSON that `read_welcome` reads."""
        return ha.dumps(
            {
                "clusterUID": self.cluster_uid,
                "epoch": self.epoch,
                "epochs": [list(entry) for entry in self.epochs.entries],
                "step": self.step.value,
                "at": self.at,
                "grantMs": 0,  # a slave of the previous version promises nothing while a grant lasts: none is given
            }
        )


def read_welcome(said: bytes) -> Welcome:
    """Return the welcome in these bytes; ValueError when it is invalid."""
    source = ha.loads_object(said)
    found = Welcome(
        _name(source, "clusterUID"),
        documents.integer(source, "epoch"),
        epochs_in(source),
        Step(documents.text(source, "step")),
        documents.integer(source, "at"),
    )
    if found.at < 0 or found.epoch < 1 or not found.cluster_uid:
        raise ValueError(f"a welcome at {found.at} in epoch {found.epoch}")
    return found


@dataclass(frozen=True, slots=True)
class MasterStatus:
    """The master's identity and log at the moment of a handshake."""

    cluster_uid: str
    group: str
    store_uid: str
    epoch: int
    epochs: EpochTable
    start: int
    end: int
    segment_bytes: int
    place: int = 0
    has_register: bool = False


@dataclass(frozen=True, slots=True)
class No:
    """The slave cannot follow; `reason` also says what an operator can do."""

    reason: str


def judge(mine: MasterStatus, hello: Hello, tail: Callable[[int], int]) -> Welcome | No:
    """Return from where the slave follows, or why it cannot.

    tail: returns our checksum of the bytes before an offset (`tail_range`).
    """
    misfit = _misfit(mine, hello)
    if misfit:
        return No(misfit)
    if hello.start == hello.end:
        if hello.end > mine.start:
            return No(f"the slave's empty log begins at {hello.end}, ours {_range(mine)}; {_COPY}")
        return _welcome(mine, Step.FOLLOW if hello.end == mine.start else Step.BEGIN, mine.start)
    common = last_common(mine.epochs, mine.end, hello.epochs, hello.end)
    if common is None:
        return No(f"the two logs have no epoch in common; {_COPY}")
    if common.end < hello.confirmed:
        return No(
            f"the slave knows messages up to {hello.confirmed} to be confirmed and agrees with this master up to "
            f"{common.end} only: the master lacks confirmed messages; look which of the two is right before one is "
            "emptied"
        )
    if common.end < mine.start:
        return No(f"the slave would go on at {common.end}, our log {_range(mine)}; {_COPY}")
    if common.end < hello.start:
        return No(f"the slave would be cut at {common.end}, its log begins at {hello.start}; {_COPY}")
    if common.end < hello.end:
        return _welcome(mine, Step.CUT, common.end)
    if tail(hello.end) != hello.tail:
        return No(
            f"the bytes before {hello.end} differ from ours: the slave's log is another one; "
            "empty its folder to have everything copied"
        )
    return _welcome(mine, Step.FOLLOW, common.end)


_COPY = "empty the slave's folder to have everything copied"


def _misfit(mine: MasterStatus, hello: Hello) -> str:
    if hello.group != mine.group:
        return f"the slave is of group {hello.group!r}, this is {mine.group!r}; set brokerName"
    if hello.cluster_uid not in ("", mine.cluster_uid):
        return (
            f"the slave's folder belongs to the cluster {hello.cluster_uid}, ours to {mine.cluster_uid}; "
            "choose another folder, or empty it"
        )
    if hello.store_uid == mine.store_uid:
        return "the slave's folder is a copy of this one; remove gantry/identity.json from the copy"
    if (hello.incarnation >= 0) is not mine.has_register:
        there, here = ("a register", "none") if hello.incarnation >= 0 else ("no register", "one")
        return f"the slave is set up with {there}, this group has {here}; set replication.register alike on all members"
    if not 0 <= hello.place < MEMBERS_MAX or hello.place == mine.place:
        what = "ordinal" if mine.has_register else "brokerId"
        return f"a slave with {what} {hello.place}; expected one below {MEMBERS_MAX} that is not ours, {mine.place}"
    if hello.segment_bytes != mine.segment_bytes:
        return (
            f"the slave's segments have {hello.segment_bytes} bytes, ours {mine.segment_bytes}; "
            "set the same mappedFileSizeCommitLog on an empty folder"
        )
    return ""


def _welcome(mine: MasterStatus, step: Step, at: int) -> Welcome:
    return Welcome(mine.cluster_uid, mine.epoch, mine.epochs, step, at)


def _range(mine: MasterStatus) -> str:
    return f"goes from {mine.start} to {mine.end}"


def tail_range(end: int, start: int, segment_bytes: int) -> tuple[int, int]:
    """Return start and end of the bytes before a log's end that are compared; they lie in one segment."""
    if end <= start:
        return end, end
    last = end - 1
    return max(start, last - last % segment_bytes, end - TAIL_BYTES), end


def epochs_in(source: documents.Document) -> EpochTable:
    """Return the table in the field `epochs`; ValueError when it is invalid."""
    pairs = []
    for pair in documents.array(source, "epochs"):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(one, int) for one in pair):
            raise ValueError(f"{str(pair)[:40]} is no epoch and its start")
        pairs.append((int(pair[0]), int(pair[1])))
    return table_of(pairs)


def _name(source: documents.Document, name: str) -> str:
    text = documents.text(source, name)
    if len(text) > _ID_CHARS_MAX:
        raise ValueError(f"{name} has {len(text)} characters, {_ID_CHARS_MAX} are allowed")
    return text
