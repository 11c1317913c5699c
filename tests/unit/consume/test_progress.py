"""How far groups and topics are, as tools ask for it."""

from __future__ import annotations

import json
from typing import Any

from gantry.consume.progress import ProgressHandlers
from gantry.leaves.frames import Command
from gantry.model.subscription import Subscription
from gantry.model.topic import TopicConfig
from gantry.wire import bodies
from gantry.wire.codes import RequestCode
from testkit.pullplay import PullPlay
from testkit.requests import answered, request


class Asking(PullPlay):
    """A pull play whose progress is asked."""

    def __init__(self) -> None:
        super().__init__()
        parts = (self.store, self.offsets, self.topics, self.clients, self.pulls.rates)
        self.handlers = ProgressHandlers(*parts, "b")

    def ask(self, code: RequestCode, **fields: Any) -> Command:
        handler: Any = {
            RequestCode.GET_CONSUME_STATS: self.handlers.consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.handlers.topic_groups,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.handlers.group_topics,
            RequestCode.LIST_LAG: self.handlers.lag,
        }[code]
        return answered(handler(self.connection, request(code, **fields)))

    def stats(self, **fields: Any) -> dict[tuple[str, int], dict[str, int]]:
        """(topic, queue) -> numbers."""
        return by_queue(self.ask(RequestCode.GET_CONSUME_STATS, **({"consumerGroup": "g"} | fields)))

    def lag(self, **fields: Any) -> tuple[list[Any], int]:
        answer = json.loads(self.ask(RequestCode.LIST_LAG, **fields).body)
        return answer["lag"], answer["next"]


def by_queue(answer: Command) -> dict[tuple[str, int], dict[str, int]]:
    assert answer.code == 0
    table = bodies.loads_object(answer.body)["offsetTable"]
    assert isinstance(table, dict)
    keys = [json.loads(key) for key in table]
    assert all(key["brokerName"] == "b" for key in keys)
    return {(key["topic"], key["queueId"]): row for key, row in zip(keys, table.values(), strict=True)}


def test_a_groups_progress_is_shown_queue_by_queue() -> None:
    play = Asking()
    play.send("one")
    first_ms = play.clock.now_ms()
    play.clock.advance(1000)
    play.send("two", "three")
    play.offsets.commit("g", "T", 0, 1)
    rows = play.stats()
    assert rows["T", 0] == {"brokerOffset": 3, "consumerOffset": 1, "lastTimestamp": first_ms, "pullOffset": 1}
    assert rows["T", 1] == {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0, "pullOffset": 0}


def test_topics_may_be_named_and_unknown_ones_are_left_out() -> None:
    play = Asking()
    play.topics.put(TopicConfig("U", read_queues=1, write_queues=1))
    play.offsets.commit("g", "T", 0, 1)
    assert {topic for topic, _ in play.stats(topic="U")} == {"U"}
    assert {topic for topic, _ in play.stats(topicList="U;T;missing")} == {"T", "U"}
    assert play.stats(consumerGroup="nobody") == {}


def test_a_topic_that_members_no_longer_want_is_left_out() -> None:
    play = Asking()
    play.offsets.commit("g", "T", 0, 1)
    play.subscribe(Subscription("U"))
    assert play.stats() == {}


def test_who_consumes_what() -> None:
    play = Asking()
    play.offsets.commit("old", "T", 0, 1)
    play.subscribe(Subscription("T"))
    groups = play.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")
    assert bodies.loads(groups.body) == {"groupList": ["g", "old"]}
    topics = play.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="old")
    assert bodies.loads_object(topics.body)["topicList"] == ["T"]


def test_lag_has_groups_that_never_committed_and_says_so() -> None:
    play = Asking()
    play.send("one", "two")
    play.offsets.commit("a", "T", 0, 1)
    play.subscribe(Subscription("T"))
    rows, following = play.lag()
    assert following == -1
    assert [(group, topic, queues[0][:4]) for group, topic, queues in rows] == [
        ("a", "T", [0, 1, 0, 2]),
        ("g", "T", [0, -1, 0, 2]),
    ]
    assert rows[0][2][0][4] == play.clock.now_ms()
    assert [row[0] for row in play.lag(group="g")[0]] == ["g"]
    assert play.lag(topic="U") == ([], -1)


def test_lag_comes_in_pages() -> None:
    play = Asking()
    for name in "abcde":
        play.offsets.commit(name, "T", 0, 1)
    found: list[str] = []
    following = 0
    pages = 0
    while following >= 0:
        rows, following = play.lag(begin=following, limit=8)
        found += [row[0] for row in rows]
        pages += 1
    assert (found, pages) == (list("abcde"), 3)
