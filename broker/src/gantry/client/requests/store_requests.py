"""Requests about the disk space of messages: RocketMQ's requests, and one of GantryMQ that only lists."""

from __future__ import annotations

from dataclasses import dataclass

from gantry.client.requests.question import Question, nothing, require, value
from gantry.model import documents
from gantry.wire.codes import RequestCode
from gantry.wire.command import request


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One segment of a broker's log, oldest first; without the one that is written to."""

    start: int
    bytes: int
    last_written_ms: int
    expired: bool  # old enough
    goes: bool  # a request would delete it now
    owed: bool  # it, or an older one, holds messages that are still needed and have to be copied first


@dataclass(frozen=True, slots=True)
class RetentionInfo:
    """One broker's disk usage, and the segments that may be deleted."""

    broker: str
    disk_used: float  # share of 1
    log_start: int
    log_end: int
    refuses_writes: bool
    waiting: int  # segments that are to be deleted and still exist
    segments: tuple[SegmentInfo, ...]


def retention(broker: str) -> Question[RetentionInfo]:
    """Ask for the segments and what a deletion would remove now; changes nothing."""

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
    """Start to delete expired segments now, independent of the configured hour."""
    return Question(request(RequestCode.DELETE_EXPIRED_COMMITLOG), nothing)


def clean_queues() -> Question[None]:
    """Delete queue files whose messages are all deleted."""
    return Question(request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE), nothing)


def clean_topics() -> Question[None]:
    """Delete queues that belong to no topic."""
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
