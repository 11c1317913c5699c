"""The row of one sink, its saved form, and the checks of requests about its batches.

`Sink` is a row of the table in `decisions`; only that module changes it.  The functions here compare one request with
one row; they change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from gantry.errors import Refusal
from gantry.model import documents
from gantry.transaction.batches import BATCH_MAX, is_home, is_part, is_sink
from gantry.wire.codes import ResponseCode

PARTS_MAX = 4096
NONE_YET = -1


class Batch(NamedTuple):
    """One batch of a sink, whose home group decides about it.  is_passing: the sink writes no other batch.  `owner`
    identifies the query that writes it, the same in all its runs; empty when it is not given.
    """

    sink: str
    number: int
    home: str
    is_passing: bool = False
    owner: str = ""


@dataclass(slots=True)
class Sink:
    """The state of one sink; `parts` is None when the batch is done, or when none was decided yet."""

    home: str
    batch: int = NONE_YET
    parts: frozenset[str] | None = None
    groups: frozenset[str] = frozenset()  # the groups in which its parts have halves
    aborted: dict[tuple[int, str], int] = field(default_factory=dict)  # when, in epoch ms
    decided_ms: int = 0
    is_passing: bool = False
    number: int = 0  # of its last change; 0: another group's decision, which needs no confirmation here
    owner: str = ""  # of the newest decision

    @property
    def is_done(self) -> bool:
        """Return whether the newest decision is done, or there is none."""
        return self.parts is None


def why_not(batch: Batch, parts: frozenset[str], groups: Iterable[str] = ()) -> Refusal | None:
    """Return what is wrong with the request itself; None when it is valid."""
    if not is_sink(batch.sink):
        return Refusal(ResponseCode.INVALID_PARAMETER, f"{batch.sink[:80]!r} is no name of a sink")
    if not 0 <= batch.number <= BATCH_MAX:
        return Refusal(ResponseCode.INVALID_PARAMETER, f"{batch.number} is no number of a batch")
    if len(parts) > PARTS_MAX:
        remark = f"{len(parts)} parts, {PARTS_MAX} are allowed in a batch; write fewer partitions (coalesce)"
        return Refusal(ResponseCode.INVALID_PARAMETER, remark)
    if batch.owner and not is_sink(batch.owner):
        return Refusal(ResponseCode.INVALID_PARAMETER, f"{batch.owner[:80]!r} is no name of an owner")
    strange = next((name for name in (batch.home, *groups) if not is_home(name)), None)
    if strange is not None:
        return Refusal(ResponseCode.INVALID_PARAMETER, f"{strange[:80]!r} is no name of a broker group")
    odd = next((part for part in parts if not is_part(part)), None)
    return None if odd is None else Refusal(ResponseCode.INVALID_PARAMETER, f"{odd[:80]!r} is no name of a part")


def not_ours(batch: Batch, sink: Sink, group: str) -> Refusal:
    """Make the refusal for a request that names another home of the sink than this group has."""
    homes = f"its home is {sink.home}, and {batch.home} in this request"
    remark = f"group {group} knows sink {batch.sink}: {homes}; use another sinkId, or `gantry tx resolve --forget`"
    return Refusal(ResponseCode.TRANSACTION_SHOULD_ROLLBACK, remark)


def why_not_reserved(batch: Batch, sink: Sink | None, group: str) -> Refusal | None:
    """Return why a group that is not the home cannot learn a decision about this batch; None when it can."""
    if sink is None:
        return None
    if sink.home != batch.home:
        return not_ours(batch, sink, group)
    if sink.batch >= batch.number:
        known = f"group {group} knows batch {sink.batch} of sink {batch.sink}, and this is batch {batch.number}"
        remark = f"{known}; another query used the sink, use another sinkId, or `gantry tx resolve --forget` again"
        return Refusal(ResponseCode.TRANSACTION_SHOULD_ROLLBACK, remark)
    return None


def not_his(batch: Batch, sink: Sink) -> Refusal:
    whose = f"batch {batch.number} of sink {batch.sink} was written by {sink.owner}, and this is {batch.owner}"
    remark = f"{whose}: two queries or checkpoints share the sink; use another sinkId, or `gantry tx resolve --forget`"
    return Refusal(ResponseCode.TRANSACTION_SHOULD_ROLLBACK, remark)


def why_not_now(batch: Batch, sink: Sink | None, parts: frozenset[str]) -> Refusal | None:
    """Return why this cannot be the sink's next batch; None when it can."""
    if sink is None:
        return None
    name = f"sink {batch.sink}"
    if batch.number < sink.batch:
        remark = f"{name} is at batch {sink.batch}, batch {batch.number} is over; does another query use this sink?"
        return Refusal(ResponseCode.TRANSACTION_SHOULD_ROLLBACK, remark)
    if sink.parts is not None:
        remark = f"batch {sink.batch} of {name} is decided and not done; end it first"
        return Refusal(ResponseCode.TRANSACTION_SHOULD_COMMIT, remark)
    gone = next((part for part in parts if (batch.number, part) in sink.aborted), None)
    if gone is not None:
        remark = f"part {gone} of batch {batch.number} of {name} was aborted; write the batch again"
        return Refusal(ResponseCode.TRANSACTION_SHOULD_ROLLBACK, remark)
    return None


def sink_of(value: object, name: str) -> Sink:
    source = documents.document(value, f"sink {name}")
    aborted = {}
    for place, when in documents.mapping(source, "aborted").items():
        batch, _, part = place.partition("/")
        if not batch.isdecimal() or not isinstance(when, int):
            raise ValueError(f"{place[:80]!r} is no aborted part of {name}")
        aborted[int(batch), part] = when
    parts = source.get("parts")
    return Sink(
        documents.text(source, "home"),
        documents.integer(source, "batch"),
        None if parts is None else frozenset(str(part) for part in documents.array(source, "parts")),
        frozenset(str(group) for group in documents.array(source, "groups")),
        aborted,
        documents.integer(source, "decidedMs"),
        source.get("passing") is True,
        owner=documents.text(source, "owner"),
    )
