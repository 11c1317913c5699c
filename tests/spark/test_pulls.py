"""What a task makes of a broker's answers: every message, or which ones are missing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gantry.client.blocking import MessageQueue, PullResult, PullStatus
from gantry.errors import RemoteProtocolError, UnreachableError
from pyspark_gantrymq import pulls, rows
from pyspark_gantrymq.offsets import Queue, Stretch
from pyspark_gantrymq.options import parse
from testkit.storedrun import Stored, run

OPTIONS = parse({"gantrymq.namesrv": "h:1", "subscribe": "t"}, is_stream=False)
LENIENT = replace(OPTIONS, is_strict=False)
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


def read(puller: Scripted, end: int = 4, options: object = OPTIONS, master: Scripted | None = None) -> list[int]:
    names = ["queueOffset", "body"]
    masters = master or puller
    batches = pulls._stretch(puller, masters, options, names, Stretch(QUEUE, 0, end))  # type: ignore[arg-type]
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


def moved(status: PullStatus, to: int, first: int = 0) -> PullResult:
    return PullResult(status, to, first, 99)


LOST = [
    pytest.param([moved(PullStatus.NO_MATCH, 3)], id="entries of lost messages"),
    pytest.param([moved(PullStatus.NO_MATCH, 3, 3)], id="a slave that begins later"),
    pytest.param([moved(PullStatus.NO_NEW_MESSAGE, 3)], id="a damaged queue"),
    pytest.param([], id="they are missing before others"),
]


@pytest.mark.parametrize("answers", LOST)
def test_messages_that_an_answer_passes_over_fail_the_query_with_their_count(answers: list[PullResult]) -> None:
    with pytest.raises(RuntimeError, match="t/b/0: messages 0 to 2 are gone, 3 in all; option failOnDataLoss"):
        read(Scripted(*answers, found(3)))


@pytest.mark.parametrize("answers", LOST)
def test_messages_that_an_answer_passes_over_are_counted_where_that_is_wanted(
    answers: list[PullResult], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert read(Scripted(*answers, found(3)), options=LENIENT) == [3]
    assert caplog.messages == ["t/b/0: messages 0 to 2 are gone, 3 in all; passed over"]


def test_each_hole_between_messages_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RuntimeError, match="messages 1 to 1 are gone, 1 in all"):
        read(Scripted(found(0, 2, 3)))
    with caplog.at_level(logging.WARNING):
        assert read(Scripted(found(0, 2, 5, 9)), 7, LENIENT) == [0, 2, 5]
    said = [(1, 1, 1), (3, 4, 2), (6, 6, 1)]
    assert caplog.messages == [f"t/b/0: messages {a} to {b} are gone, {n} in all; passed over" for a, b, n in said]


@pytest.mark.parametrize("answers", LOST)
def test_what_a_slave_lacks_is_read_from_its_master(answers: list[PullResult]) -> None:
    slave, master = Scripted(*answers, found(3)), Scripted(found(0, 1), found(2, 3))
    assert read(slave, master=master) == [0, 1, 2, 3]


def test_what_a_slave_lacks_is_lost_when_its_master_says_so_too(caplog: pytest.LogCaptureFixture) -> None:
    slave, late = Scripted(moved(PullStatus.NO_MATCH, 3, 3)), moved(PullStatus.OFFSET_ILLEGAL, 2, 2)
    with pytest.raises(RuntimeError, match="messages 0 to 1 are gone, 2 in all"):
        read(slave, master=Scripted(late))
    slave = Scripted(moved(PullStatus.NO_MATCH, 3, 3))
    with caplog.at_level(logging.WARNING):
        assert read(slave, options=LENIENT, master=Scripted(late, found(2, 3))) == [2, 3]
    assert caplog.messages == ["t/b/0: messages 0 to 1 are gone, 2 in all; passed over"]


def test_what_a_slave_lacks_is_not_lost_while_its_master_is_away() -> None:
    lacking = moved(PullStatus.NO_MATCH, 3, 3)
    slave, master = Scripted(lacking, lacking), Scripted(UnreachableError("b: away"), found(0, 1, 2, 3))
    assert read(slave, master=master) == [0, 1, 2, 3]
    impatient = replace(LENIENT, outage_s=-1.0)
    with pytest.raises(RuntimeError, match="no answer: b: away; a slave says: t/b/0: messages 0 to 2 are gone"):
        read(Scripted(lacking), options=impatient, master=Scripted(UnreachableError("b: away")))


def test_the_master_is_asked_for_what_a_slave_does_not_come_to() -> None:
    behind = [moved(PullStatus.NO_MATCH, 2)] * pulls._LAGS_MAX
    assert read(Scripted(found(0, 1), *behind), master=Scripted(found(2, 3))) == [0, 1, 2, 3]


def test_messages_that_retention_took_fail_the_query_with_their_count() -> None:
    with pytest.raises(RuntimeError, match="messages 0 to 2 are gone, 3 in all; option failOnDataLoss"):
        read(Scripted(moved(PullStatus.OFFSET_ILLEGAL, 3, 3)))


def test_messages_that_retention_took_are_counted_where_that_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert read(Scripted(moved(PullStatus.OFFSET_ILLEGAL, 3, 3), found(3)), options=LENIENT) == [3]
    assert "t/b/0: messages 0 to 2 are gone, 3 in all; passed over" in caplog.text


def test_a_filter_leaves_holes_and_may_match_nothing(caplog: pytest.LogCaptureFixture) -> None:
    filtered = replace(OPTIONS, sql="a > 1")
    assert read(Scripted(moved(PullStatus.NO_MATCH, 2), found(3, to=5)), options=filtered) == [3]
    assert read(Scripted(found(1, 3, to=4)), options=filtered) == [1, 3]
    slave = Scripted(moved(PullStatus.NO_MATCH, 2), found(3, to=5))
    assert read(slave, options=filtered, master=Scripted()) == [3]
    assert not caplog.messages


@pytest.mark.parametrize("names", [["queueOffset"], ["queueOffset", "tags", "body"]])
def test_a_tag_of_the_same_hash_is_another_tag(names: list[str]) -> None:
    tags = [b"Aa", b"BB", b"Aa", None, b"C"]
    stored = [Stored(b"", b"UNIQ_KEY\x01u\x02" + (b"TAGS\x01%s\x02" % tag if tag else b"")) for tag in tags]
    answer = PullResult(PullStatus.FOUND, 5, 0, 99, records=run(stored))
    filtered = replace(OPTIONS, tags="Aa || C")
    puller = Scripted(answer)
    (batch,) = pulls._stretch(puller, puller, filtered, names, Stretch(QUEUE, 0, 5))  # type: ignore[arg-type]
    assert batch.schema == rows.schema_of(names)
    assert batch.column(0).to_pylist() == [0, 2, 4]


def test_what_no_filter_saw_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    filtered, begins_later = replace(OPTIONS, sql="a > 1"), moved(PullStatus.NO_MATCH, 3, 3)
    with pytest.raises(RuntimeError, match="0 to 2 are gone, 3 in all, whether the filter would have let them through"):
        read(Scripted(begins_later), options=filtered)
    with caplog.at_level(logging.WARNING):
        assert read(Scripted(begins_later, found(3)), options=replace(filtered, is_strict=False)) == [3]
    assert "messages 0 to 2 are gone, 3 in all, whether" in caplog.text
