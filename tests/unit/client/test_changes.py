"""What became of a topic or a group, as seen from one broker and from several."""

from __future__ import annotations

import asyncio

import pytest

from gantry.client.admin import Admin, Change
from gantry.client.changes import summed
from gantry.model.topic import TopicConfig
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.patience import HANG_S
from testkit.scripted import ScriptedCluster, body, refuse

ONE, TABLE, PUT = RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.UPDATE_AND_CREATE_TOPIC
MADE, CHANGED, SAME = Change.CREATED, Change.CHANGED, Change.UNCHANGED


@pytest.mark.parametrize(
    ("changes", "result"),
    [([MADE, MADE], MADE), ([SAME, SAME], SAME), ([MADE, SAME], CHANGED), ([CHANGED, SAME], CHANGED)],
)
def test_of_several_brokers_one_word_is_said(changes: list[Change], result: Change) -> None:
    assert summed(changes) is result


@pytest.mark.parametrize("knows_the_question", [True, False], ids=["5.x", "4.x"])
async def test_a_topic_that_is_as_wanted_is_not_told_again(knows_the_question: bool) -> None:
    there = TopicConfig("T", 8, 8, attributes={"kept": "1"}).to_json()
    async with asyncio.timeout(HANG_S), ScriptedCluster(1) as cluster:
        cluster.answers["broker-a", ONE] = body(there)
        cluster.answers["broker-a", TABLE] = body({"topicConfigTable": {"T": there}})
        cluster.answers["broker-a", PUT] = body({})
        if not knows_the_question:
            cluster.answers["broker-a", ONE] = refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        async with Admin(nameserver=cluster.nameserver) as admin:
            assert await admin.create_topic("T") is SAME
            assert not cluster.asked("broker-a", PUT)
            assert await admin.create_topic("T", queues=4) is CHANGED
            cluster.answers["broker-a", ONE] = refuse(ResponseCode.TOPIC_NOT_EXIST)
            assert await admin.create_topic("T") is MADE
            assert len(cluster.asked("broker-a", PUT)) == 2
