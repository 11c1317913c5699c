"""BrokerTopics on real brokers of this process: what is applied and holds there, what the status says, how it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantry.errors import RefusedError
from gantry.model.topic import PERM_READ, PERM_READ_WRITE, TopicConfig
from gantry.wire.codes import ResponseCode
from gantry_operator.api.declared import FINALIZER, Kind
from gantry_operator.declared.declarations import LATER_S, SOON_S, WAITING_S
from gantry_operator.declared.topics import PRODUCERS_S
from gantry_operator.kube import KubeError, declared_path
from testkit.brokerplay import peer, send
from testkit.kube.declared import CLUSTER
from testkit.kube.declaredplay import Play, playing

APPLIED = ("True", "Applied")
PAUSED = {"gantrymq.io/pause-reconciliation": "true"}


async def test_a_topic_is_made_on_every_group_and_its_status_says_where(tmp_path: Path) -> None:
    async with playing(tmp_path, groups=2) as play:
        key = play.tea(topicName="Tea_1", queues={"write": 3, "read": 5}, messageType="FIFO", limits={"bodyBytes": 9})
        assert await play.once(key) == LATER_S
        for group in range(2):
            config = await play.topic("Tea_1", group)
            assert config is not None and (config.write_queues, config.read_queues) == (3, 5)
            assert config.attributes == {"message.type": "FIFO", "message.size.max": "9"}
        place = {"epoch": 1, "read": 5, "write": 3, "permission": "ReadWrite"}
        status = play.server.status(key)
        assert status["placements"] == [{"group": "b0"} | place, {"group": "b1"} | place]
        assert (status["topicName"], status["observedGeneration"]) == ("Tea_1", 1)
        assert play.server.condition(key) == APPLIED and play.server.condition(key, "Stalled")[0] == "False"
        assert "finalizers" not in play.server.documents[declared_path(key)]["metadata"]


async def test_an_unchanged_topic_costs_no_write(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        key = play.tea()
        await play.once(key)
        play.server.writes.clear()
        await play.once(key)
        assert play.server.writes == []


async def test_what_somebody_changed_by_hand_is_set_right(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        key = play.tea(queues={"write": 4, "read": 4})
        await play.once(key)
        await play.change(TopicConfig("tea", 4, 4, PERM_READ, order=True))
        await play.once(key)
        config = await play.topic("tea")
        assert config is not None and config.perm == PERM_READ_WRITE and config.order


async def test_what_a_limit_says_holds_on_the_running_broker_until_it_is_taken_back(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        key = play.tea(queues={"write": 1, "read": 1}, limits={"bodyBytes": 0})
        await play.once(key)
        with pytest.raises(RefusedError, match=r"message\.size\.max"):
            await play.produce(0)
        with play.server.changed(key) as document:
            del document["spec"]["limits"]["bodyBytes"]
        await play.once(key)
        await play.produce(0)
        assert play.server.status(key)["observedGeneration"] == 2


async def test_a_permission_holds_on_the_running_broker(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        await play.once(play.tea(permission="Read"))
        async with peer(play.cluster.brokers[f"{CLUSTER}-b0"]) as client:
            answer = await client.call(send("tea", b"x"))
        assert answer.code == ResponseCode.NO_PERMISSION


async def test_a_queue_that_is_given_up_is_read_to_its_end_first(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        key = play.tea(queues={"write": 4, "read": 4})
        await play.once(key)
        await play.produce(0, 2)
        with play.server.changed(key) as document:
            document["spec"]["queues"] = {"write": 1, "read": 1}
        assert await play.once(key) == WAITING_S
        assert play.server.condition(key) == ("False", "Draining")
        assert await queues(play) == (1, 4), "producers may not have heard yet"
        play.clock.advance(int(PRODUCERS_S * 1000))
        await play.once(key)
        assert await queues(play) == (1, 3), "a message waits in queue 2, and nobody has read any"
        async with play.consuming(2):
            pass
        await play.once(key)
        assert await queues(play) == (1, 1)
        assert play.server.condition(key) == APPLIED


async def queues(play: Play) -> tuple[int, int]:
    config = await play.topic("tea")
    assert config is not None
    return config.write_queues, config.read_queues


async def test_a_topic_of_some_groups_follows_its_placement(tmp_path: Path) -> None:
    async with playing(tmp_path, groups=2) as play:
        key = play.tea(placement={"groups": ["b0"]})
        await play.once(key)
        assert await play.topic("tea", 1) is None
        with play.server.changed(key) as document:
            document["spec"]["placement"]["groups"] = ["b1", "b7"]
        await play.once(key)
        left = await play.topic("tea", 0)
        assert left is not None and left.perm == PERM_READ
        assert await play.topic("tea", 1) is not None
        assert play.server.condition(key) == ("False", "GroupUnavailable")
        assert [each["permission"] for each in play.server.status(key)["placements"]] == ["Read", "ReadWrite"]


async def test_a_group_that_does_not_answer_keeps_no_other_one_waiting_and_gets_it_later(tmp_path: Path) -> None:
    async with playing(tmp_path, groups=2) as play:
        await play.cluster.stop(f"{CLUSTER}-b0")
        key = play.tea()
        assert await play.once(key) == SOON_S
        assert await play.once(key) == 2 * SOON_S, "less and less often"
        assert play.server.condition(key) == ("False", "GroupUnavailable")
        assert await play.topic("tea", 1) is not None
        play.server.writes.clear()
        await play.once(key)
        assert play.server.writes == [], "its text does not change while it lasts"
        await play.cluster.start(f"{CLUSTER}-b0")
        await play.once(key)
        assert play.server.condition(key) == APPLIED and await play.topic("tea", 0) is not None


async def test_a_new_master_gets_what_it_lacks_and_its_epoch_is_told(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        key = play.tea()
        await play.once(key)
        await play.brokers.delete_topic(play.member(0), "tea")  # as if it had not come over in time
        play.server.lead(0, 0, epoch=2)
        await play.once(key)
        assert await play.topic("tea") is not None
        assert play.server.status(key)["placements"][0]["epoch"] == 2


async def test_a_group_that_nobody_leads_is_waited_for(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        play.server.lead(0, 0, epoch=2)
        for path, document in play.server.documents.items():
            if "/leases/" in path:
                document["spec"]["holderIdentity"] = ""
        key = play.tea()
        assert await play.once(key) == SOON_S
        assert play.server.condition(key) == ("False", "GroupUnavailable")


async def test_what_a_broker_refuses_for_good_is_said_in_its_own_words(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        key = play.tea(topicName=f"{CLUSTER}-b0")  # brokers keep a topic of their own name
        assert await play.once(key) == LATER_S
        assert play.server.condition(key) == ("False", "Unsupported")
        assert play.server.condition(key, "Stalled") == ("True", "Unsupported")
        assert "conflict with system topic" in play.server.status(key)["conditions"][0]["message"]


async def test_a_topic_without_its_cluster_says_so_and_follows_when_there_is_one(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        key = play.tea()
        await play.once(key)
        play.server.remove_cluster()
        assert await play.once(key) == LATER_S
        assert play.server.condition(key) == ("False", "ClusterNotFound")
        assert "placements" not in play.server.status(key)
        play.server.add_cluster()
        await play.once(key)
        assert play.server.condition(key) == APPLIED


async def test_of_two_that_speak_for_one_topic_the_older_one_is_right_until_it_goes(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        older = play.server.declare(Kind.TOPIC, "zulu", topicName="tea", queues={"write": 1, "read": 1})
        newer = play.tea(queues={"write": 2, "read": 2}, deletionPolicy="Delete")
        play.server.documents[declared_path(newer)]["metadata"]["creationTimestamp"] = "2026-11-21T10:00:01Z"
        for key in newer, older, newer:
            await play.once(key)
        assert play.server.condition(older) == APPLIED and play.server.condition(newer) == ("False", "Conflict")
        assert await queues(play) == (1, 1)
        play.server.delete(newer)
        assert not play.server.has(newer), "who is not right holds nothing"
        newer = play.tea(queues={"write": 2, "read": 2})
        play.server.delete(older)
        await play.once(newer)
        assert play.server.condition(newer) == APPLIED and await queues(play) == (2, 2)


async def test_what_is_observed_or_paused_is_told_and_not_touched(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        key = play.tea(managementPolicy="Observe", deletionPolicy="Delete")
        await play.once(key)
        assert play.server.condition(key) == ("False", "NotFound") and await play.topic("tea") is None
        await play.change(TopicConfig("tea", 3, 3))
        await play.once(key)
        assert play.server.condition(key) == ("True", "Observed") and await queues(play) == (3, 3)
        with play.server.changed(key) as document:
            document["spec"]["managementPolicy"] = "Managed"
            document["metadata"]["annotations"] = PAUSED
        await play.once(key)
        assert play.server.condition(key, "Paused")[0] == "True" and await queues(play) == (3, 3)
        assert "finalizers" not in play.server.documents[declared_path(key)]["metadata"]


async def test_a_topic_goes_with_its_object_where_that_is_asked_for(tmp_path: Path) -> None:
    async with playing(tmp_path, groups=2) as play:
        key = play.tea(deletionPolicy="Delete")
        assert await play.once(key) == SOON_S
        assert play.server.documents[declared_path(key)]["metadata"]["finalizers"] == [FINALIZER]
        await play.once(key)
        await play.produce(0)
        play.server.delete(key)
        await play.cluster.stop(f"{CLUSTER}-b1")
        await play.once(key)
        assert play.server.has(key) and play.server.condition(key) == ("False", "GroupUnavailable")
        await play.cluster.start(f"{CLUSTER}-b1")
        await play.once(key)
        assert not play.server.has(key) and await play.once(key) is None
        assert [await play.topic("tea", group) for group in range(2)] == [None, None]
        assert "tea" not in play.cluster.server.table.topics


async def test_a_topic_stays_where_nothing_else_is_asked_for(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        key = play.tea(deletionPolicy="Delete")
        await play.once(key)
        with play.server.changed(key) as document:
            document["spec"]["deletionPolicy"] = "Retain"
        await play.once(key)
        await play.once(key)
        play.server.delete(key)
        assert not play.server.has(key) and await play.once(key) is None
        assert await play.topic("tea") is not None


@pytest.mark.parametrize("how", ["gone", "going"])
async def test_nobody_waits_for_a_topic_whose_cluster_goes(tmp_path: Path, how: str) -> None:
    async with playing(tmp_path) as play:
        key = play.tea(deletionPolicy="Delete")
        await play.once(key)
        await play.once(key)
        play.server.delete(key)
        if how == "gone":
            play.server.remove_cluster()
        else:
            for document in play.server.documents.values():
                if document.get("kind") == "BrokerCluster":
                    document["metadata"]["deletionTimestamp"] = "2026-11-21T11:00:00Z"
        await play.once(key)
        assert not play.server.has(key) and await play.topic("tea") is not None


async def test_a_finalizer_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        key = play.tea(deletionPolicy="Delete")
        with play.server.changed(key) as document:
            document["metadata"]["finalizers"] = ["else/where"]
        await play.once(key)
        play.server.delete(key)
        await play.once(key)
        assert play.server.documents[declared_path(key)]["metadata"]["finalizers"] == ["else/where"]
        assert await play.once(key) == LATER_S


async def test_a_server_that_is_busy_is_asked_again(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        key = play.tea()
        play.server.faults = [503]
        with pytest.raises(KubeError):
            await play.once(key)
        await play.once(key)
        assert play.server.condition(key) == APPLIED


async def test_wherever_an_operator_dies_the_next_one_arrives(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        made, gone = [], []
        for step in range(1, 9):
            key = play.server.declare(Kind.TOPIC, f"tea-{step}", deletionPolicy="Delete")
            made.append(await play.die(key, step))
            await play.once(key)
            await play.once(key)
            assert play.server.condition(key) == APPLIED and await play.topic(f"tea-{step}") is not None
            play.server.delete(key)
            gone.append(await play.die(key, step))
            await play.once(key)
            assert not play.server.has(key) and await play.topic(f"tea-{step}") is None
        assert made[:5] == [True] * 5, "a finalizer, a question, a change, a question, a status"
        assert gone[:2] == [True] * 2, "deleted, and the finalizer"
        assert not made[-1] and not gone[-1]
