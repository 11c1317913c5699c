"""Requests to end transactions, as they wait for the end of the loop's turn, and which of them are settled together.

An `EndRun` is what one connection sent in one go, where every end names an open half and is of the usual kind: such
runs are laid out by compiled code and cost no step of Python for each end.  Everything else is a `SettleRequest`, one
end by itself: of the broker, of an administrator, of a producer whose half was put back or is no longer open.

Both wait in one list and are settled in its order, because the first outcome of a transaction counts.  A run that turns
out not to be usual (two ends of one transaction, a topic that is gone) is settled as requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gantry.leaves import frames
from gantry.leaves.records import BLANK_BYTES_MIN
from gantry.transaction.checker import OpenHalf
from gantry.transaction.half import SYS_COMMIT
from gantry.transaction.oplog import TransactionState
from gantry.wire.command import Request

if TYPE_CHECKING:
    from gantry.leaves.frames import End
    from gantry.transport.connection import Connection

# Ends of one append, and bytes of their halves.
_REQUESTS_MAX, _BYTES_MAX = 64, 1 << 20
_ENDS_MAX, _RUN_BYTES_MAX = 256, 1 << 19
# What an end adds to the bytes of its half: its op, and what a delay adds to the real message.
_END_BYTES = 1024


class SettleRequest(NamedTuple):
    """A request to end one transaction, with its half."""

    connection: Connection | None  # None: the broker itself ends it, without an answer
    request: Request | None
    half: OpenHalf
    outcome: TransactionState
    found: TransactionState | None = None  # how it ended by the log, where no table knows the transaction

    @property
    def asker(self) -> tuple[Connection, Request] | None:
        """Return the connection and the request to be answered; None when no answer is expected."""
        if self.connection is None or self.request is None or self.request.is_oneway:
            return None
        return self.connection, self.request


class EndRun(NamedTuple):
    """Ends of one connection, each with the open half that it names; `bytes` is not less than those of the halves."""

    connection: Connection
    ends: Sequence[End]
    halves: Sequence[OpenHalf]
    bytes: int


Waiting = SettleRequest | EndRun


def pieces(run: EndRun, segment_bytes: int) -> Sequence[Waiting]:
    """Return the run in pieces that fit into one append; as requests where its messages are long."""
    if run.bytes > _RUN_BYTES_MAX or not _fits(min(len(run.ends), _ENDS_MAX), run.bytes, segment_bytes):
        return requests_of([run])
    if len(run.ends) <= _ENDS_MAX:
        return (run,)
    starts = range(0, len(run.ends), _ENDS_MAX)
    cuts = [slice(start, start + _ENDS_MAX) for start in starts]
    return [run._replace(ends=run.ends[cut], halves=run.halves[cut]) for cut in cuts]


def first_runs(waiting: Sequence[Waiting], segment_bytes: int) -> list[EndRun]:
    """Return the runs with which the list begins, as many as fit into one append."""
    found: list[EndRun] = []
    ends = total = 0
    for one in waiting:
        if not isinstance(one, EndRun):
            break
        ends += len(one.ends)
        total += one.bytes
        is_full = ends > _ENDS_MAX or total > _RUN_BYTES_MAX or not _fits(ends, total, segment_bytes)
        if found and is_full:
            break
        found.append(one)
    return found


def first_requests(waiting: Sequence[Waiting], segment_bytes: int) -> list[SettleRequest]:
    """Return the requests with which the list begins, as many as fit into one append."""
    found: list[SettleRequest] = []
    total = 0
    for one in waiting:
        if not isinstance(one, SettleRequest) or len(found) == _REQUESTS_MAX:
            break
        total += one.half.size
        if found and (total > _BYTES_MAX or not _fits(len(found) + 1, total, segment_bytes)):
            break
        found.append(one)
    return found


def requests_of(waiting: Sequence[Waiting]) -> list[SettleRequest]:
    """Return every end as a request of its own, in the same order."""
    return [request for one in waiting for request in ([one] if isinstance(one, SettleRequest) else _requests(one))]


def replies(runs: Sequence[EndRun]) -> Iterator[tuple[Connection, bytearray, int]]:
    """Yield for each connection the replies SUCCESS of all of its ends and how many they are; none for one-way ends."""
    asked: dict[Connection, Sequence[End]] = {}
    for connection, ends, _, _ in runs:
        asked[connection] = [*asked[connection], *ends] if connection in asked else ends
    for connection, ends in asked.items():
        encoded, count = frames.encode_end_replies(ends)
        if count:
            yield connection, encoded, count


def _fits(ends: int, half_bytes: int, segment_bytes: int) -> bool:
    """Return whether one segment holds the records of these ends, which are appended together."""
    return half_bytes + ends * _END_BYTES + BLANK_BYTES_MIN <= segment_bytes


def _requests(run: EndRun) -> Iterator[SettleRequest]:
    for end, half in zip(run.ends, run.halves, strict=True):
        outcome = TransactionState.COMMITTED if end.kind == SYS_COMMIT else TransactionState.ROLLED_BACK
        yield SettleRequest(run.connection, end, half, outcome)
