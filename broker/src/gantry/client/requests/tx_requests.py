"""Requests about transactions; only GantryMQ's brokers support them.


A transaction is named by its message id, by the offset id of its half, or by its root (the queue offset of its
first half).  The message id is the same on every broker group; a root is valid on one group only.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from gantry.client.requests.question import Question, nothing, require, value
from gantry.leaves.frames import Command
from gantry.model import documents
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import request
from gantry.wire.headers import to_ext

PAGE = 200
OPEN, GIVEN_UP = "open", "given-up"
COMMIT, ROLLBACK, REARM = "commit", "rollback", "rearm"


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """One transaction according to its broker; `properties` and `body` only when it was requested alone."""

    broker: str
    id: str
    root: int
    topic: str
    producer_group: str
    age_ms: int
    checks: int  # how often a producer was asked
    keys: str
    log_offset: int
    half_offset: int
    state: str  # open, committed, rolled-back, given-up or unknown
    properties: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""  # the beginning of the body, as it was sent
    is_movable: bool = True  # False: its properties leave no room for a copy; it can only be committed or rolled back


@dataclass(frozen=True, slots=True)
class TransactionPage:
    """One page of a broker's list."""

    transactions: tuple[TransactionInfo, ...]
    following: int  # start of the next page, -1 at the end
    violations: tuple[str, ...]  # producer groups that other kinds of producers use too, as sentences


def listed(broker: str, state: str, begin: int, group: str, topic: str) -> Question[TransactionPage]:
    """Ask for open or given-up transactions from a position on, oldest first."""

    def make(source: object) -> TransactionPage:
        body = documents.document(source, "a list of transactions")
        return TransactionPage(
            tuple(_info(broker, one) for one in documents.array(body, "transactions")),
            documents.integer(body, "next", -1),
            tuple(_text_of(one) for one in documents.array(body, "groupViolations")),
        )

    ext = to_ext(state=state, begin=begin, limit=PAGE, group=group or None, topic=topic or None)
    return Question(request(RequestCode.LIST_TRANSACTIONS, ext), lambda reply: value(require(reply), make))


def shown(broker: str, wanted: str) -> Question[TransactionInfo | None]:
    """Ask for one transaction with all details; None when this broker does not know it."""

    def read(reply: Command) -> TransactionInfo | None:
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return value(require(reply), lambda source: _info(broker, source))

    return Question(request(RequestCode.SHOW_TRANSACTION, to_ext(id=wanted)), read)


def settled(wanted: str, action: str, operator: str) -> Question[None]:
    """Commit, roll back or rearm a transaction by hand."""
    ext = to_ext(id=wanted, action=action, operator=operator)
    return Question(request(RequestCode.SETTLE_TRANSACTION, ext), nothing)


def _info(broker: str, source: object) -> TransactionInfo:
    one = documents.document(source, "a transaction")
    return TransactionInfo(
        broker,
        documents.text(one, "id"),
        documents.integer(one, "root"),
        documents.text(one, "topic"),
        documents.text(one, "producerGroup"),
        documents.integer(one, "ageMs"),
        documents.integer(one, "checks"),
        documents.text(one, "keys"),
        documents.integer(one, "logOffset"),
        documents.integer(one, "halfOffset"),
        documents.text(one, "state"),
        documents.texts(one, "properties"),
        base64.b64decode(documents.text(one, "body")),
        documents.boolean(one, "movable", True),
    )


def _text_of(violation: object) -> str:
    one = documents.document(violation, "a violation of the group rule")
    group, kind = documents.text(one, "group"), documents.text(one, "kind")
    return f"the transactional producer group {group} is also used by {kind}"
