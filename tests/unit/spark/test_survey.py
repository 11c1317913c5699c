"""How often brokers are asked before what they do not say is an error, or somebody who is away."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from gantry.errors import RefusedError, UnreachableError
from pyspark_gantrymq import survey
from pyspark_gantrymq.offsets import BrokerTopic, Queue
from pyspark_gantrymq.options import parse
from pyspark_gantrymq.standing import Ends, Seen

OPTIONS = replace(parse({"gantrymq.namesrv": "h:1", "subscribe": "t"}, is_stream=False), pause_s=0.0)
AWAY = Seen(away={"broker-a": "away"})


@pytest.mark.parametrize("retries", [0, 3])
def test_a_question_is_asked_again_so_often(retries: int) -> None:
    asked = []

    def question(puller: object) -> None:
        asked.append(puller)
        raise UnreachableError("away")

    with pytest.raises(UnreachableError):
        survey.asked(replace(OPTIONS, retries=retries), "g", question)
    assert len(asked) == retries + 1


def test_an_answer_ends_the_questions() -> None:
    answers = iter([UnreachableError("away"), 7])

    def question(_: object) -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert survey.asked(OPTIONS, "g", question) == 7


@pytest.mark.parametrize(("answers", "retries", "asked"), [([AWAY] * 3, 2, 3), ([AWAY], 0, 1), ([AWAY, Seen()], 9, 2)])
def test_who_is_away_is_looked_for_again_so_often(
    answers: list[Seen], retries: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(answers)
    monkeypatch.setattr(survey, "_looked", lambda *_: next(left))
    assert survey.look(replace(OPTIONS, retries=retries)) == answers[asked - 1]
    assert list(left) == []


def test_who_was_gone_before_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    former, more = Seen(gone={"topic t": "gone"}), Seen(gone={"topic t": "gone", "broker-a": "gone"})
    left = iter([former, more, more, Seen()])
    monkeypatch.setattr(survey, "_looked", lambda *_: next(left))
    assert survey.look(OPTIONS, done={"topic t"}) == former
    assert survey.look(OPTIONS, done={"topic t"}) == Seen()


def test_an_assigned_group_that_is_not_in_the_route_is_away_unless_losses_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here, there, missing = Queue("t", "broker-a", 0), Queue("t", "broker-b", 0), Queue("t", "broker-a", 7)
    seen = Seen({here: Ends(0, 5)}, gone={"broker-b": "not in the route of topic t"})
    monkeypatch.setattr(survey, "_looked", lambda *_: seen)
    options = replace(OPTIONS, topics=(), assigned=frozenset({here, there}), retries=0)
    with pytest.raises(RuntimeError, match="broker-b is away: not in the route of topic t; option failOnDataLoss=fals"):
        survey.whole(options)
    with caplog.at_level(logging.WARNING):
        assert survey.whole(replace(options, is_strict=False)) == seen
    assert caplog.messages == ["broker-b is done with: not in the route of topic t"]
    with pytest.raises(RefusedError, match="the assigned queue t/broker-a/7 is not there"):
        survey.look(replace(options, assigned=frozenset({here, there, missing})))


def test_a_topic_that_a_pattern_had_is_gone_and_not_away() -> None:
    options = replace(OPTIONS, topics=(), pattern="t.*")
    expected = [
        BrokerTopic("t1", "broker-a"),
        BrokerTopic("t1", "broker-b"),
        BrokerTopic("t2", "broker-a"),
        BrokerTopic("other", "broker-a"),
    ]
    assert survey._gone(options, expected, {"t1": {"broker-a"}}) == {
        "broker-b": "not in the route of topic t1",
        "topic t2": "not there any more",
    }


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp"])
@pytest.mark.parametrize(
    "name", ['{"T":{"broker-a":{"0":1}}}', '{"t":{"broker-b":{"0":1}}}', '{"t":{"broker-a":{"9":1}}}']
)
def test_offsets_of_a_queue_that_the_query_does_not_read_are_an_error(option: str, name: str) -> None:
    given = parse({"gantrymq.namesrv": "h:1", "subscribe": "t", option: name}, is_stream=False)
    where = given.end if option == "endingOffsets" else given.start
    with pytest.raises(
        ValueError, match=r"offsets name (T|t)/broker-[ab]/[09], .* it reads t/broker-a/0, t/broker-a/1"
    ):
        survey.bound(given, where, {Queue("t", "broker-a", number): Ends(0, 5) for number in (0, 1)})
