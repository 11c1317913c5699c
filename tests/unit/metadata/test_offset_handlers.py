from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gantry.leaves.frames import Command
from gantry.metadata.offset_handlers import OffsetHandlers
from gantry.metadata.offsets import NOT_COMMITTED
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.pullplay import SMALL, PullPlay
from testkit.requests import answered, request


class Asking(PullPlay):
    """A pull play whose offsets are asked."""

    def __init__(self, young_bytes: int = 1 << 20) -> None:
        super().__init__(store=replace(SMALL))
        self.handlers = OffsetHandlers(self.offsets, self.topics, self.groups, self.store, young_bytes)
        self.groups.ensure("g")

    def query(self, **fields: Any) -> Command:
        asked: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0} | fields
        return self.handlers.query(self.connection, request(RequestCode.QUERY_CONSUMER_OFFSET, **asked))

    def update(self, **fields: Any) -> int:
        told: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 7} | fields
        return self.handlers.update(self.connection, request(RequestCode.UPDATE_CONSUMER_OFFSET, **told)).code


def test_what_was_told_is_what_is_asked() -> None:
    play = Asking()
    assert play.update() == ResponseCode.SUCCESS
    answer = play.query()
    assert (answer.code, answer.ext) == (0, {"offset": "7"})
    assert play.query(setZeroIfNotFound="false").ext == {"offset": "7"}


def test_a_new_group_begins_at_the_first_message_of_a_young_queue() -> None:
    play = Asking()
    play.send("one")
    assert play.query().ext == {"offset": "0"}
    assert play.query(setZeroIfNotFound="true", consumerGroup="unknown").ext == {"offset": "0"}


def test_unless_it_does_not_want_to() -> None:
    play = Asking()
    play.send("one")
    assert play.query(setZeroIfNotFound="false").code == ResponseCode.QUERY_NOT_FOUND


def test_a_new_group_does_not_skip_the_message_that_comes_behind_its_question() -> None:
    play = Asking()
    assert play.query().ext == {"offset": "0"}
    play.send("one")  # a client that was told "not found" would ask for the end only now
    assert play.query().ext == {"offset": "0"}


@pytest.mark.parametrize("nowhere", [{"topic": "unknown"}, {"queueId": 4}, {"queueId": -1}])
def test_what_is_no_queue_is_not_young(nowhere: dict[str, Any]) -> None:
    answer = Asking().query(**nowhere)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark


def test_a_queue_whose_first_message_is_far_from_the_end_is_not_young() -> None:
    play = Asking(young_bytes=1000)
    play.send("one")
    assert play.query().code == ResponseCode.SUCCESS
    play.send("x" * 1000, topic="other")
    assert play.query().code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"consumerGroup": "unknown"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER),
        ({"commitOffset": -1}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_an_offset_of_nothing_is_refused_and_not_kept(fields: dict[str, Any], code: int) -> None:
    play = Asking()
    assert play.update(**fields) == code
    assert list(play.offsets.all()) == []
    assert play.offsets.query("g", "T", 0) == NOT_COMMITTED


def test_an_offset_may_be_set_back() -> None:
    play = Asking()
    play.update(commitOffset=7)
    assert play.update(commitOffset=3) == ResponseCode.SUCCESS
    assert play.query().ext == {"offset": "3"}


def test_the_whole_table_comes_as_its_document() -> None:
    play = Asking()
    play.update()
    answer = answered(play.handlers.all(play.connection, request(RequestCode.GET_ALL_CONSUMER_OFFSET)))
    assert json.loads(answer.body)["offsetTable"] == {"T@g": {"0": 7}}
