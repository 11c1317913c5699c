"""What a task makes of a broker's answers: every message, or which ones are missing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gantry.client.blocking import MessageQueue, PullResult, PullStatus
from gantry.errors import RemoteProtocolError, UnreachableError
from pyspark_gantrymq import pulls
from pyspark_gantrymq.offsets import Queue, Stretch
from pyspark_gantrymq.options import parse
from testkit.storedrun import Stored, run

OPTIONS = parse({"gantrymq.namesrv": "h:1", "subscribe": "t"}, is_stream=False)
QUEUE = Queue("t", "b", 0)


class Scripted:
    """Answers one after the other."""

    def __init__(self, *answers: PullResult | Exception) -> None:
        self.counts: list[object] = []
        self._answers: Iterator[PullResult | Exception] = iter(answers)

    def pull(self, queue: MessageQueue, offset: int, **wanted: object) -> PullResult:
        self.counts.append(wanted["count_max"])
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def found(*offsets: int, to: int | None = None) -> PullResult:
    records = run([Stored()] * len(offsets), offsets)
    return PullResult(PullStatus.FOUND, offsets[-1] + 1 if to is None else to, 0, 99, records=records)


def read(puller: Scripted, end: int = 4, options: object = OPTIONS) -> list[int]:
    names = ["queueOffset", "body"]
    batches = pulls._stretch(puller, options, names, Stretch(QUEUE, 0, end))  # type: ignore[arg-type]
    return [at for batch in batches for at in batch.column(0).to_pylist()]


def test_what_comes_behind_the_end_of_a_stretch_is_left_out() -> None:
    assert read(Scripted(found(0, 1), found(2, 3, 4, 5))) == [0, 1, 2, 3]


def test_no_more_is_asked_for_at_once_than_is_wanted() -> None:
    puller = Scripted(found(0, 1), found(2), found(3))
    assert read(puller, options=replace(OPTIONS, pull_rows=2)) == [0, 1, 2, 3]
    assert puller.counts == [2, 2, 1]
    few = replace(OPTIONS, pull_rows=10)
    pieces = pulls._pieces(few, [Stretch(QUEUE, 5, 28)])
    assert [(one.start, one.end) for one in pieces] == [(5, 15), (15, 25), (25, 28)]


def test_a_body_that_is_not_its_checksum_s_fails_the_query_unless_nobody_looks() -> None:
    records = run([Stored(b"tea")] * 4).replace(b"tea", b"tee", 1)
    broken = PullResult(PullStatus.FOUND, 4, 0, 99, records=records)
    with pytest.raises(RemoteProtocolError, match="0 good records"):
        read(Scripted(broken))
    assert read(Scripted(broken), options=replace(OPTIONS, is_checked=False)) == [0, 1, 2, 3]


def test_a_broker_that_is_away_or_behind_is_asked_again() -> None:
    behind = PullResult(PullStatus.NO_NEW_MESSAGE, 0, 0, 0)
    assert read(Scripted(UnreachableError("b: away"), behind, found(0, 1, 2, 3))) == [0, 1, 2, 3]


def test_who_never_answers_fails_the_task() -> None:
    with pytest.raises(RuntimeError, match=r"t/b/0: offset 0 did not come.*maxOutage.*no answer: b: away"):
        read(Scripted(UnreachableError("b: away")), options=replace(OPTIONS, outage_s=-1.0))


def test_a_hole_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="t/b/0: the answer from 0 on has a hole"):
        read(Scripted(found(0, 2, 3)))


def test_messages_that_retention_took_fail_the_query_with_their_count() -> None:
    moved = PullResult(PullStatus.OFFSET_ILLEGAL, 3, 3, 9)
    with pytest.raises(RuntimeError, match="messages 0 to 2 are gone, 3 in all; option failOnDataLoss"):
        read(Scripted(moved))


def test_messages_that_retention_took_are_counted_where_that_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    moved, lenient = PullResult(PullStatus.OFFSET_ILLEGAL, 3, 3, 9), replace(OPTIONS, is_strict=False)
    with caplog.at_level(logging.WARNING):
        assert read(Scripted(moved, found(3)), options=lenient) == [3]
    assert "t/b/0: messages 0 to 2 are gone, 3 in all; passed over" in caplog.text


def test_a_filter_leaves_holes_and_may_match_nothing() -> None:
    nothing = PullResult(PullStatus.NO_MATCH, 2, 0, 99)
    assert read(Scripted(nothing, found(3, to=5)), options=replace(OPTIONS, tags="a")) == [3]
