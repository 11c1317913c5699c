"""What an administrator asks about the room that messages take: RocketMQ's requests, and ours for looking first."""

from __future__ import annotations

from dataclasses import dataclass

from gantry.client.requests.question import Question, nothing, require, value
from gantry.model import documents
from gantry.wire.codes import RequestCode
from gantry.wire.command import request


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One file of a broker's log that may go by its place, oldest first."""

    start: int
    bytes: int
    last_written_ms: int
    expired: bool  # old enough
    goes: bool  # would be deleted by hand now
    owed: bool  # or one before it holds something that is still owed, which is carried on first


@dataclass(frozen=True, slots=True)
class RetentionInfo:
    """One broker's disk, and what would go."""

    broker: str
    disk_used: float  # share of 1
    log_start: int
    log_end: int
    refuses_writes: bool
    waiting: int  # segments that are to go and have not gone yet
    segments: tuple[SegmentInfo, ...]


def retention(broker: str) -> Question[RetentionInfo]:
    """What is there, and what would go by hand now; changes nothing."""

    def make(source: object) -> RetentionInfo:
        body = documents.document(source, "a view of retention")
        used = body.get("diskUsed")
        return RetentionInfo(
            broker,
            float(used) if isinstance(used, int | float) else 0.0,
            documents.integer(body, "logStart"),
            documents.integer(body, "logEnd"),
            documents.boolean(body, "refusesWrites"),
            documents.integer(body, "waiting"),
            tuple(_segment(one) for one in documents.array(body, "segments")),
        )

    return Question(request(RequestCode.SHOW_RETENTION), lambda reply: value(require(reply), make))


def delete_expired() -> Question[None]:
    """Have segments that are old enough deleted from now on, whatever the hour."""
    return Question(request(RequestCode.DELETE_EXPIRED_COMMITLOG), nothing)


def clean_queues() -> Question[None]:
    """Have queue files deleted of which all messages are gone."""
    return Question(request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE), nothing)


def clean_topics() -> Question[None]:
    """Have queues deleted that belong to no topic."""
    return Question(request(RequestCode.CLEAN_UNUSED_TOPIC), nothing)


def _segment(source: object) -> SegmentInfo:
    one = documents.document(source, "a segment")
    return SegmentInfo(
        documents.integer(one, "start"),
        documents.integer(one, "bytes"),
        documents.integer(one, "lastWrittenMs"),
        documents.boolean(one, "expired"),
        documents.boolean(one, "goes"),
        documents.boolean(one, "owed"),
    )
