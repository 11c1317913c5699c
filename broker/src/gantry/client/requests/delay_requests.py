"""Requests about delayed messages; only GantryMQ's brokers support them."""

from __future__ import annotations

from dataclasses import dataclass

from gantry.client.requests.question import Question, require, value
from gantry.leaves.frames import Command
from gantry.model import documents
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import request
from gantry.wire.headers import to_ext

PAGE = 200


@dataclass(frozen=True, slots=True)
class DelayedInfo:
    """One message that waits for its delivery; `level` is 0 when it has its own delivery time."""

    broker: str
    id: str
    topic: str
    queue_id: int
    level: int
    due_ms: int
    stored_ms: int
    keys: str
    tags: str
    message_id: str


@dataclass(frozen=True, slots=True)
class DelayedPage:
    """One page of a broker's list."""

    delayed: tuple[DelayedInfo, ...]
    following: int  # start of the next page, -1 at the end


def listed(broker: str, begin: int, topic: str) -> Question[DelayedPage]:
    """Ask for delayed messages from a position on: by level, each level in the order of sending."""

    def make(source: object) -> DelayedPage:
        body = documents.document(source, "a list of delayed messages")
        found = tuple(_info(broker, one) for one in documents.array(body, "delayed"))
        return DelayedPage(found, documents.integer(body, "next", -1))

    ext = to_ext(begin=begin, limit=PAGE, topic=topic or None)
    return Question(request(RequestCode.LIST_DELAYED, ext), lambda reply: value(require(reply), make))


def cancelled(wanted: str, operator: str) -> Question[bool]:
    """Cancel a message's delivery; False when no delayed message of this broker has the id."""

    def read(reply: Command) -> bool:
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return False
        require(reply)
        return True

    return Question(request(RequestCode.CANCEL_DELAYED, to_ext(id=wanted, operator=operator)), read)


def _info(broker: str, source: object) -> DelayedInfo:
    one = documents.document(source, "a delayed message")
    return DelayedInfo(
        broker,
        documents.text(one, "id"),
        documents.text(one, "topic"),
        documents.integer(one, "queueId"),
        documents.integer(one, "level"),
        documents.integer(one, "dueMs"),
        documents.integer(one, "storedMs"),
        documents.text(one, "keys"),
        documents.text(one, "tags"),
        documents.text(one, "messageId"),
    )
