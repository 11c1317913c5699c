"""Requests about batches of sinks (`broker/docs/transactions.md`): decide one, end its halves, list.

A sink has a home group, which alone decides; every group ends its own halves.  Only GantryMQ's brokers support these
requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gantry.client.requests.question import Question, require, value
from gantry.leaves.frames import Command
from gantry.model import documents
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import request
from gantry.wire.headers import to_ext

COMMIT, ABORT, DONE, ASK, FORGET = "commit", "abort", "done", "ask", "forget"
# Refusals of a group that has no master, or too few copies; all others are final.
PASSING = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
    }
)
UNDECIDED, COMMITTED, ABORTED = "undecided", "committed", "aborted"


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """One batch of a sink. is_passing: the sink writes no other batch. owner: the only query that may write it,
    repeatedly.
    """

    sink: str
    batch: int
    home: str
    is_passing: bool = False
    owner: str = ""


@dataclass(frozen=True, slots=True)
class SinkDecision:
    """The newest decision of a sink. `batch` is -1 while there is none; `parts` are unknown once it is completed."""

    batch: int
    parts: tuple[str, ...]
    groups: tuple[str, ...]  # those that have halves of its parts
    is_done: bool


@dataclass(frozen=True, slots=True)
class SettledHalves:
    """How many halves a call ended, and how many of the sink are decided and still open."""

    settled: int
    left: int


@dataclass(frozen=True, slots=True)
class SinkInfo:
    """A group's knowledge of a sink."""

    group: str
    sink: str
    home: str
    batch: int
    is_done: bool
    parts: int
    aborted: int
    decided_ms: int
    is_passing: bool


@dataclass(frozen=True, slots=True)
class OpenPartInfo:
    """The open halves of one part in a group; verdict: undecided, committed or aborted."""

    group: str
    sink: str
    batch: int
    part: str
    home: str
    halves: int
    age_ms: int
    verdict: str


@dataclass(frozen=True, slots=True)
class SinkPage:
    """A group's list, and how many entries did not fit into it."""

    sinks: tuple[SinkInfo, ...]
    parts: tuple[OpenPartInfo, ...]
    more: int


def decided(
    one: SinkBatch,
    action: str,
    parts: Sequence[str] | None = None,
    groups: Sequence[str] = (),
    operator: str = "",
) -> Question[SinkDecision]:
    """Decide a batch, or ask for the decision. The answer is about an earlier batch when that has to be ended first."""
    body = b"" if parts is None else bodies.dumps({"parts": list(parts), "groups": list(groups)})
    ext = _place(one) | to_ext(action=action, operator=operator or None, owner=one.owner or None)

    def read(reply: Command) -> SinkDecision:
        return value(require(reply, ResponseCode.TRANSACTION_SHOULD_COMMIT), _decision)

    return Question(request(RequestCode.DECIDE_BATCH, ext, body), read)


def ended(
    one: SinkBatch, parts: Sequence[str] | None, aborted: Sequence[str] | None = None, is_done: bool = False
) -> Question[SettledHalves]:
    """End a group's halves of a batch, as many as one call may: these parts are committed and others not, or these are
    aborted.
    """
    named = {"parts": parts} if parts is not None else {} if aborted is None else {"aborted": aborted}
    body = bodies.dumps({name: list(names) for name, names in named.items()})
    ext = _place(one) | to_ext(done="true" if is_done else None)

    def make(source: object) -> SettledHalves:
        said = documents.document(source, "what ended")
        return SettledHalves(documents.integer(said, "settled"), documents.integer(said, "left"))

    return Question(request(RequestCode.END_BATCH, ext, body), lambda reply: value(require(reply), make))


def reserved(one: SinkBatch) -> Question[SettledHalves]:
    """Make a group that is not the home agree to learn the home's decision about this batch.

    RefusedError 201: it knows another home, or a batch as late as this one; 2: its table is full.
    """
    ext = _place(one) | to_ext(reserve="true")
    return Question(request(RequestCode.END_BATCH, ext, bodies.dumps({"aborted": []})), ended(one, None).read)


def listed(group: str, sink: str = "") -> Question[SinkPage]:
    """Ask for all sinks that a group knows or has halves of, or for one."""
    ext = to_ext(sinkId=sink or None)
    return Question(
        request(RequestCode.LIST_SINKS, ext), lambda reply: value(require(reply), lambda source: _page(group, source))
    )


def _place(one: SinkBatch) -> dict[str, str]:
    return to_ext(sinkId=one.sink, batchId=one.batch, home=one.home, passing="true" if one.is_passing else None)


def _decision(source: object) -> SinkDecision:
    said = documents.document(source, "a decision")
    parts, groups = (tuple(str(one) for one in documents.array(said, name)) for name in ("parts", "groups"))
    return SinkDecision(documents.integer(said, "batch", -1), parts, groups, documents.boolean(said, "done"))


def _page(group: str, source: object) -> SinkPage:
    body = documents.document(source, "a list of sinks")
    sinks, parts = [], []
    for item in documents.array(body, "sinks"):
        one = documents.document(item, "a sink")
        sinks.append(
            SinkInfo(
                group,
                documents.text(one, "sinkId"),
                documents.text(one, "home"),
                documents.integer(one, "batch", -1),
                documents.boolean(one, "done"),
                documents.integer(one, "parts"),
                documents.integer(one, "aborted"),
                documents.integer(one, "decidedMs"),
                documents.boolean(one, "passing"),
            )
        )
    for item in documents.array(body, "parts"):
        one = documents.document(item, "a part")
        parts.append(
            OpenPartInfo(
                group,
                documents.text(one, "sinkId"),
                documents.integer(one, "batch"),
                documents.text(one, "part"),
                documents.text(one, "home"),
                documents.integer(one, "halves"),
                documents.integer(one, "ageMs"),
                documents.text(one, "verdict"),
            )
        )
    there = documents.integer(body, "sinkCount") + documents.integer(body, "partCount")
    return SinkPage(tuple(sinks), tuple(parts), there - len(sinks) - len(parts))
