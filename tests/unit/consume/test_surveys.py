"""What tools compare groups by."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gantry.append.redelivery import MoveToDeadLetters, RedeliveryCounts, Retry
from gantry.consume.statistics import Statistics, counted
from gantry.consume.surveys import SurveyHandlers
from gantry.leaves.frames import Command
from gantry.metadata import offsettable
from gantry.model import names
from gantry.model.subscription import Subscription
from gantry.model.topic import TopicConfig
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.pullplay import PullPlay
from testkit.requests import answered, request


class Asking(PullPlay):
    """A pull play that is surveyed."""

    def __init__(self) -> None:
        super().__init__()
        self.sent_back = RedeliveryCounts()
        self.statistics = self.begin()
        parts = (self.store, self.offsets, self.topics, self.groups, self.clients, self.statistics, self.clock)
        self.handlers = SurveyHandlers(*parts)

    def begin(self) -> Statistics:
        return Statistics(
            lambda: counted(self.store, self.pulls.counts, self.sent_back, "c"), self.clock, "b", "h:1"
        )

    def ask(self, code: RequestCode, **fields: Any) -> Command:
        handler: Any = {
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.handlers.time_span,
            RequestCode.QUERY_CORRECTION_OFFSET: self.handlers.correction,
            RequestCode.CLONE_GROUP_OFFSET: self.handlers.clone,
            RequestCode.GET_BROKER_CONSUME_STATS: self.handlers.all_groups,
            RequestCode.VIEW_BROKER_STATS_DATA: self.handlers.view,
        }[code]
        return answered(handler(self.connection, request(code, **fields)))


def test_the_time_span_of_a_queue_says_what_was_stored_when_and_how_long_the_next_has_waited() -> None:
    play = Asking()
    times = []
    for name in "abc":
        play.clock.advance(1000)
        play.send(name)
        times.append(play.clock.now_ms())
    play.offsets.commit("g", "T", 0, 2)
    play.clock.advance(5000)
    answer = play.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="T", group="g")
    first, second = json.loads(answer.body)["consumeTimeSpanSet"][:2]
    assert first == {
        "consumeTimeStamp": times[1],
        "delayTime": 5000,
        "maxTimeStamp": times[2],
        "messageQueue": {"brokerName": "b", "queueId": 0, "topic": "T"},
        "minTimeStamp": times[0],
    }
    assert (second["delayTime"], second["minTimeStamp"], second["consumeTimeStamp"]) == (0, -1, -1)
    missing = play.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="other", group="g")
    assert missing.code == ResponseCode.TOPIC_NOT_EXIST


def test_the_correction_is_the_smallest_offset_of_the_groups_that_count() -> None:
    play = Asking()
    play.send(*"abcdef")
    for group, offset in (("one", 4), ("two", 3), ("left", 1), ("compared", 5)):
        play.offsets.commit(group, "T", 0, offset)

    def correction(compared: str) -> object:
        fields = {"filterGroups": "left,none", "compareGroup": compared, "topic": "T"}
        return json.loads(play.ask(RequestCode.QUERY_CORRECTION_OFFSET, **fields).body)["correctionOffsets"]

    assert correction("compared") == {"0": 3}
    assert correction("left") == {"0": (1 << 63) - 1}, "it is behind already"


def test_a_group_is_put_where_another_is() -> None:
    play = Asking()
    play.topics.put(TopicConfig("T2", read_queues=1, write_queues=1))
    for topic, offset in (("T", 4), ("T2", 3), ("gone", 1)):
        play.offsets.commit("from", topic, 0, offset)
    asked = {"srcGroup": "from", "destGroup": "to"}
    assert play.ask(RequestCode.CLONE_GROUP_OFFSET, **asked).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    play.groups.ensure("to")
    assert play.ask(RequestCode.CLONE_GROUP_OFFSET, **asked, topic="T").code == 0
    assert [play.offsets.query("to", topic, 0) for topic in ("T", "T2")] == [4, -1]
    assert play.ask(RequestCode.CLONE_GROUP_OFFSET, **asked).code == 0
    assert [play.offsets.query("to", topic, 0) for topic in ("T2", "gone")] == [3, -1]


def test_a_clone_obeys_the_bound_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Asking()
    play.groups.ensure("to")
    play.offsets.commit("from", "T", 0, 4)
    monkeypatch.setattr(offsettable, "KEYS_MAX", 1)
    answer = play.ask(RequestCode.CLONE_GROUP_OFFSET, srcGroup="from", destGroup="to")
    assert answer.code == ResponseCode.SYSTEM_BUSY and "no room for offsets" in (answer.remark or "")
    assert play.offsets.query("to", "T", 0) == -1


def test_a_topic_that_a_group_at_work_no_longer_wants_is_cloned_only_when_it_is_said_to_be_away() -> None:
    play = Asking()
    play.groups.ensure("to")
    play.offsets.commit("from", "T", 0, 4)
    play.subscribe(Subscription("T2", "*"), group="from")
    asked = {"srcGroup": "from", "destGroup": "to", "topic": "T"}
    play.ask(RequestCode.CLONE_GROUP_OFFSET, **asked)
    assert play.offsets.query("to", "T", 0) == -1
    play.ask(RequestCode.CLONE_GROUP_OFFSET, **asked, offline="true")
    assert play.offsets.query("to", "T", 0) == 4


def test_all_groups_are_listed_with_how_far_they_are_behind_together() -> None:
    play = Asking()
    play.send(*"abcdef")
    for group, offset in (("one", 4), ("two", 1)):
        play.groups.ensure(group)
        play.offsets.commit(group, "T", 0, offset)
    found = bodies.loads_object(play.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false").body)
    assert (found["brokerAddr"], found["totalDiff"], found["totalInflightDiff"]) == ("h:1", 7, 0)
    rows = found["consumeStatsList"]
    assert isinstance(rows, list)
    assert [list(row) for row in rows] == [["one"], ["two"]]
    table = rows[0]["one"][0]["offsetTable"]
    assert {json.loads(key)["queueId"]: row["consumerOffset"] for key, row in table.items()} == {0: 4, 1: 0, 2: 0, 3: 0}
    ordered = bodies.loads_object(play.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="true").body)
    assert (ordered["consumeStatsList"], ordered["totalDiff"]) == ([], 0)


def test_statistics_have_a_minute_an_hour_and_a_day_and_begin_with_the_process() -> None:
    play = Asking()

    def view(name: str, key: str) -> Any:
        answer = play.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
        return json.loads(answer.body) if answer.code == 0 else answer.code

    def pass_s(seconds: int) -> None:
        for _ in range(seconds // 10):
            play.clock.advance(10_000)
            for _ in play.statistics.sampling():
                pass

    assert view("TOPIC_PUT_NUMS", "T") == ResponseCode.SYSTEM_ERROR
    play.send(*"abcdef")
    play.groups.ensure("g")
    play.pull(0)
    pass_s(10)
    assert view("TOPIC_PUT_NUMS", "T")["statsMinute"] == {"avgpt": 0.0, "sum": 6, "tps": 0.6}
    assert view("BROKER_PUT_NUMS", "c")["statsHour"]["sum"] == 6
    assert view("GROUP_GET_NUMS", "T@g")["statsDay"]["sum"] == 6
    assert view("GROUP_GET_SIZE", "T@g")["statsDay"]["sum"] > 6
    assert view("TOPIC_PUT_SIZE", "T")["statsDay"]["sum"] == play.store.written.offset
    pass_s(120)
    play.send("g")
    pass_s(10)
    assert [view("TOPIC_PUT_NUMS", "T")[name]["sum"] for name in ("statsMinute", "statsHour", "statsDay")] == [1, 7, 7]
    pass_s(4800)
    found = view("TOPIC_PUT_NUMS", "T")
    assert [found[name]["sum"] for name in ("statsMinute", "statsHour")] == [0, 0]
    assert found["statsDay"]["sum"] == 7
    begun = play.begin().windows("TOPIC_PUT_NUMS", "T")
    assert begun is not None and begun["statsDay"]["sum"] == 0, "what was there before did not come now"


def test_what_is_sent_back_and_what_the_broker_keeps_for_itself_are_counted_apart() -> None:
    play = Asking()
    play.send(*"abc")
    play.send("d", topic=names.HALF_TOPIC)
    for fate in (Retry(3), Retry(4), MoveToDeadLetters()):
        play.sent_back.count(fate, "g", "T")
    play.clock.advance(10_000)
    for _ in play.statistics.sampling():
        pass

    def total(name: str, key: str) -> int | None:
        found = play.statistics.windows(name, key)
        return None if found is None else int(found["statsDay"]["sum"])

    assert total("SNDBCK_PUT_NUMS", "T@g") == 3
    assert (total("BROKER_PUT_NUMS", "c"), total("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "c")) == (4, 3)
    assert total("QUEUE_PUT_NUMS", "T@0") is None
