"""Request 36 by runs: the log and the counts are those of the same requests one by one, and the rest is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gantry.errors import Refusal
from gantry.leaves import COMPILED, frames
from gantry.leaves.records import Record
from gantry.model import names
from gantry.model.subscription import GroupConfig
from gantry.model.topic import PERM_READ, TopicConfig
from gantry.store.settings import Flush
from gantry.wire.command import reply
from testkit.fake_connection import FakeConnection
from testkit.sendbackplay import DLQ, GROUP, RETRY, SendBackPlay


def asked(record: Record, **ext: str | int) -> dict[str, str | int]:
    return {"offset": record.log_offset, "originTopic": "T"} | ext


def stored(play: SendBackPlay) -> list[tuple[object, ...]]:
    """What a copy is, but for its own place and time."""
    found = [*play.records(RETRY), *play.records(DLQ)]
    return [
        (one.topic, one.flag, one.sys_flag, one.born_ms, one.born_host, one.reconsume_times, one.prepared_offset, text)
        for one in found
        for text in (one.body, one.properties)
    ]


def messages(play: SendBackPlay) -> list[Record]:
    """Fresh ones, committed ones, with what earlier rounds wrote, redelivered ones, worn-out ones."""
    return [
        play.message(b"fresh"),
        play.message(b"committed", sys_flag="8", prepared_offset="700", TRAN_MSG="true", flag="7"),
        play.message(b"delayed", queue_id=2, DELAY="3", REAL_TOPIC="T", REAL_QID="2", WAIT="false", KEYS="a b"),
        play.message(b"forged", queue_id=1, RETRY_TOPIC="Forged", ORIGIN_MESSAGE_ID="X"),
        play.message(b"again", topic=RETRY, reconsume_times="2", RETRY_TOPIC="T", ORIGIN_MESSAGE_ID="A1"),
        play.message(b"worn out", topic=RETRY, reconsume_times="16", RETRY_TOPIC="T", ORIGIN_MESSAGE_ID="A1"),
        play.message(b"no origin", topic=RETRY, reconsume_times="1"),
        play.message(b"given up", DLQ_ORIGIN_TOPIC="Old", DLQ_ORIGIN_MESSAGE_ID="Old1"),
    ]


def requests(found: list[Record]) -> list[dict[str, str | int]]:
    made = [asked(one) for one in found[:5]] + [asked(found[5], originTopic="")]
    made.append(asked(found[6], originTopic=RETRY, delayLevel=7, maxReconsumeTimes=3))
    return [*made, asked(found[7], delayLevel=-1)]


def test_a_run_does_what_its_requests_do_one_by_one() -> None:
    alone, together = SendBackPlay(), SendBackPlay()
    for ext in requests(messages(alone)):
        assert alone.send_back(alone.store.reader.record_at(int(ext["offset"])), **ext) == 0  # type: ignore[arg-type]
    before = [*together.records(RETRY), *together.records(DLQ)]
    asked_for = requests(messages(together))
    assert together.run(*asked_for) == []
    assert stored(together) == stored(alone) and len(stored(alone)) == 2 * (len(before) + 3 + len(asked_for))
    assert together.levels == alone.levels == [3, 3, 3, 3, 5, 7]
    assert vars_of(together) == vars_of(alone)


def vars_of(play: SendBackPlay) -> tuple[object, ...]:
    counts = play.handler.counts
    return counts.retried, counts.dead, counts.dropped, counts.refused, [one.to_json() for one in play.topics.all()]


def test_a_run_is_one_append_and_one_answer_a_connection_after_its_mark() -> None:
    play = SendBackPlay(Flush.SYNC)
    found = [play.message(queue_id=number % 4) for number in range(6)]
    peers: list[Any] = [FakeConnection(), FakeConnection()]
    appended: list[int] = []
    play.store.written.listen(appended.append)
    assert play.run(*[asked(one) for one in found], connections=peers) == []
    assert len(appended) == 1 and play.records(RETRY) == []
    assert [peer.take() for peer in peers] == [[], []]
    play.flush()
    for peer in peers:
        answers = peer.take()
        assert [answer.code for answer in answers] == [0, 0, 0]
        assert all(frames.encode(answer) == frames.encode(reply(answer)) for answer in answers)
    assert len(play.records(RETRY)) == 6


def test_one_way_requests_are_carried_out_and_not_answered() -> None:
    play = SendBackPlay()
    found = play.message()
    command = frames.Command(36, flag=frames.FLAG_ONEWAY)
    command.ext = {name: str(value) for name, value in asked(found, group=GROUP, delayLevel=0).items()}
    assert play.handler.runs.take([(play.connection, command)]) == []
    assert play.connection.take() == [] and len(play.records(RETRY)) == 1


def test_what_needs_a_closer_look_is_left_and_the_others_are_taken() -> None:
    play = SendBackPlay()
    good, end = play.message(), play.store.written.offset
    inner = bytes(play.store.reader.fetch("T", 0, 0, 1, 1 << 20, None).buffers[0])
    faked = end + 88 + 100  # where the record inside the body stands, as it says itself
    outer = play.message(b"." * 100 + inner[:28] + faked.to_bytes(8, "big") + inner[36:])
    play.groups.put(GroupConfig("none", retry_queues=0))
    half, other = play.message(topic=names.HALF_TOPIC), play.message(topic="%RETRY%h")
    bad: list[dict[str, str | int]] = [
        asked(good, offset=good.log_offset + 1),
        asked(good, offset=faked),
        asked(good, offset=1 << 60),
        asked(good, offset="-1"),
        asked(good, offset="x"),
        asked(good, group="nobody"),
        asked(good, group="none"),
        asked(good, delayLevel=""),
        asked(good, originTopic="Other"),
        asked(half, originTopic=""),
        asked(other, originTopic=""),
        asked(play.message("主题".encode(), topic=RETRY, RETRY_TOPIC="主题"), originTopic=""),
    ]
    assert outer.log_offset == end
    assert len(play.run(asked(good), *bad, asked(good))) == len(bad)
    assert len(play.records(RETRY)) == 3 and len(play.connection.take()) == 2
    assert play.handler.counts.refused == {}


def _shut(play: SendBackPlay) -> None:
    play.gate.shut("full", Refusal(14, "no room"))


def _no_write(play: SendBackPlay) -> None:
    play.admission.set_writable(False)


def _no_retry_topic(play: SendBackPlay) -> None:
    play.topics.put(TopicConfig(RETRY, 1, 1, PERM_READ))


def _forbidden(play: SendBackPlay) -> None:
    play.groups._forbidden[GROUP] = {"T": PERM_READ}


def _no_delay(play: SendBackPlay) -> None:
    play.refuses_delay = Refusal(13, "no delay")


@pytest.mark.parametrize("change", [_shut, _no_write, _no_retry_topic, _forbidden, _no_delay])
def test_where_each_would_be_refused_nothing_is_written(change: Any) -> None:
    play = SendBackPlay()
    found = play.message()
    change(play)
    before = play.store.written.offset
    assert len(play.run(asked(found), asked(found))) == 2
    assert play.store.written.offset == before and play.handler.counts.retried == {}


def test_properties_that_leave_no_room_are_left() -> None:
    play = SendBackPlay()
    found, good = play.message(padding="x" * 32_300), play.message()
    assert len(play.run(asked(found), asked(good))) == 1
    assert len(play.records(RETRY)) == 1


def test_records_far_behind_the_end_are_left_so_that_no_page_is_waited_for() -> None:
    play = SendBackPlay(warm_bytes=600)
    far = play.message(bytes(1000))
    near = play.message()
    assert [command.ext["offset"] for command in play.run(asked(far), asked(near))] == [str(far.log_offset)]


@pytest.mark.skipif(not COMPILED, reason="the pure leaves cannot ask the kernel what is in memory")
def test_records_far_behind_the_end_are_taken_while_they_are_in_memory(tmp_path: Path) -> None:
    play = SendBackPlay(folder=str(tmp_path), warm_bytes=600)
    long = play.message(bytes(9000))
    far = [play.message(bytes(1000)) for _ in range(3)]
    for _ in range(5):
        play.message(bytes(1000))
    is_cold = play.store.reader.is_cold
    nowhere = asked(far[0], offset=far[0].log_offset + 1)
    assert len(play.run(asked(far[2]), nowhere, asked(long), asked(far[0]))) == 1
    assert [len(one.body) for one in play.records(RETRY)] == [1000, 9000, 1000]
    # One that would have to be read from the disk: the loop waits for none.
    play.store.reader.is_cold = lambda places, end=0: (long.log_offset, long.size) in places or is_cold(places, end)
    assert len(play.run(asked(far[2]), asked(long))) == 2
    play.store.reader.is_cold = lambda places, end=0: places[0][0] == far[0].log_offset or is_cold(places, end)
    assert len(play.run(asked(far[0]))) == 1


def test_a_run_is_cut_where_it_grows_long_and_where_a_segment_ends() -> None:
    play = SendBackPlay(segment_bytes=1 << 18)
    found = [play.message(b"%d" % number + bytes(60_000)) for number in range(12)]
    assert found[-1].log_offset > play.settings.segment_bytes
    assert play.run(*[asked(one) for one in found]) == []
    assert [one.body for one in play.records(RETRY)] == [one.body for one in found]


@pytest.mark.parametrize("where", ["behind the append", "before the second append"])
def test_when_a_run_fails_nobody_is_told_to_send_again_what_is_in_the_log(where: str) -> None:
    play = SendBackPlay()
    play.groups.put(GroupConfig("h"))
    mine, others = asked(play.message(b"mine"), group=GROUP), asked(play.message(b"other's"), group="h")
    run = []
    for ext in (mine, others):
        command = frames.Command(36)
        command.ext = {name: str(value) for name, value in {"delayLevel": 0, **ext}.items()}
        run.append((play.connection, command))
    runs: Any = play.handler.runs
    calls = iter([None, OSError("broken")])

    def breaks(*given: Any, then: Any = runs._answer if where == "behind the append" else runs._copies) -> Any:
        error = OSError("broken") if where == "behind the append" else next(calls)
        if error is not None:
            raise error
        return then(*given)

    setattr(runs, "_answer" if where == "behind the append" else "_copies", breaks)
    commands = [command for _, command in run]
    with pytest.raises(OSError, match="broken"):
        runs.take(run)
    assert [one.body for one in play.records(RETRY)] == [b"mine"]
    assert [command for _, command in run] == commands[1:]
