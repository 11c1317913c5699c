"""A group is told about every queue that somebody answers for."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Self

import pytest

from gantry.client.blocking import MessageQueue
from gantry.errors import GantryError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.wire.codes import ResponseCode
from pyspark_gantrymq import groupoffsets
from pyspark_gantrymq.offsets import Queue

A, B = "broker-a", "broker-b"
GONE = RefusedError(ResponseCode.TOPIC_NOT_EXIST, "no broker has the topic")
AWAY = UnreachableError("away")


class Brokers:
    """Two groups; topics that they have, and what goes wrong with one topic of one of them."""

    def __init__(self, topics: Mapping[str, set[str]], wrong: Mapping[tuple[str, str], GantryError]) -> None:
        self.asked: list[Queue] = []
        self.offsets: dict[Queue, int] = {}
        self._topics = topics
        self._wrong = wrong

    def __call__(self, group: str, *, nameserver: str) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, broker, 0) for broker in self._topics[topic]]

    def committed(self, queue: MessageQueue) -> int | None:
        name = Queue(queue.topic, queue.broker_name, queue.queue_id)
        self.asked.append(name)
        if (name.topic, name.broker) in self._wrong:
            raise self._wrong[name.topic, name.broker]
        return self.offsets.get(name)

    def commit(self, queue: MessageQueue, offset: int) -> None:
        self.offsets[Queue(queue.topic, queue.broker_name, queue.queue_id)] = offset


EVERYTHING = {Queue(topic, broker, number): 5 for topic in "pq" for broker in (A, B) for number in (0, 1)}


@pytest.mark.parametrize(
    ("topics", "wrong", "untold", "asked"),
    [
        pytest.param({"q": {A, B}}, {("p", A): GONE, ("p", B): GONE}, {("p", A), ("p", B)}, 8, id="a deleted topic"),
        pytest.param({"p": {A, B}, "q": {A, B}}, {("p", A): AWAY, ("q", A): AWAY}, {("p", A), ("q", A)}, 5, id="away"),
        pytest.param({"p": {B}, "q": {A, B}}, {("p", A): AWAY}, {("p", A)}, 8, id="no longer in the route"),
        pytest.param({"p": {A}}, {("p", A): OutcomeUnknownError("no answer")}, {("p", A), ("q", A)}, 5, id="silent"),
    ],
)
def test_who_is_away_or_gone_holds_up_no_other_queue(
    topics: dict[str, set[str]],
    wrong: dict[tuple[str, str], GantryError],
    untold: set[tuple[str, str]],
    asked: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    brokers = Brokers(topics, wrong)
    monkeypatch.setattr(groupoffsets, "BlockingPuller", brokers)
    with caplog.at_level(logging.WARNING):
        told = groupoffsets.tell("h:1", "g", EVERYTHING)
    assert told == brokers.offsets == {one: 5 for one in EVERYTHING if (one.topic, one.broker) not in untold}
    assert len(brokers.asked) == asked
    error = next(iter(wrong.values()))
    assert caplog.messages == [f"group g was not told {8 - len(told)} of its offsets: p/broker-a/0: {error}"]
