"""What tools, and who keeps offsets outside of the broker, are told about a topic."""

from __future__ import annotations

import json

from gantry.client.requests.topicstats import TopicStats, topic_stats
from gantry.consume.topicstats import TopicStatsHandlers
from gantry.leaves.frames import Command
from gantry.model.route import MessageQueue
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.pullplay import PullPlay
from testkit.requests import answered, request


class Asking(PullPlay):
    """A pull play whose topics are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.handlers = TopicStatsHandlers(self.store, self.topics, self.clock, "b", lambda: "uid")

    def ask(self, topic: str = "T") -> Command:
        asked = request(RequestCode.GET_TOPIC_STATS_INFO, topic=topic)
        return answered(self.handlers.stats(self.connection, asked))


def test_a_topics_queues_have_ends_and_the_time_of_their_last_message() -> None:
    play = Asking()
    play.clock.advance(5000)
    play.send("one", "two")
    stored_ms = play.clock.now_ms()
    body = bodies.loads_object(play.ask().body)
    table = body["offsetTable"]
    assert isinstance(table, dict)
    rows = {json.loads(key)["queueId"]: row for key, row in table.items()}
    assert rows[0] == {"lastUpdateTimestamp": stored_ms, "maxOffset": 2, "minOffset": 0}
    assert rows[3] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
    assert body["topicPutTps"] == round(2 / 60, 2)
    assert play.ask("missing").code == ResponseCode.TOPIC_NOT_EXIST


def test_a_topic_says_which_cluster_and_which_life_of_its_name_it_is() -> None:
    play = Asking()
    play.send("one")
    read = topic_stats("T").read
    assert read(play.ask()) == TopicStats(
        {MessageQueue("T", "b", at): (0, 1 if at == 0 else 0) for at in range(4)}, "uid", 0
    )
    play.store.generations.begin("T", play.store.written.offset)
    assert read(play.ask()).generation == 1


def test_a_broker_of_rocketmq_says_neither() -> None:
    play = Asking()
    answer = play.ask()
    answer.ext = {}
    found = topic_stats("T").read(answer)
    assert (found.cluster_uid, found.generation) == ("", None)
