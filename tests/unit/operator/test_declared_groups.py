"""ConsumerGroups on real brokers of this process: what is applied, how they get on, resets, and how they go."""

from __future__ import annotations

from pathlib import Path

from gantry.model.subscription import GroupConfig
from gantry_operator.api.declared import Kind
from gantry_operator.declared.declarations import LATER_S
from gantry_operator.declared.groupplan import STALE_MS
from gantry_operator.declared.groups import LAG_S
from testkit.kube.declared import CLUSTER
from testkit.kube.declaredplay import playing

APPLIED = ("True", "Applied")
EARLIEST = {"requestId": "one", "topic": "tea", "to": {"position": "Earliest"}, "force": False}


async def test_a_group_is_made_as_it_is_asked_for_and_set_right(tmp_path: Path) -> None:
    async with playing(tmp_path, groups=2) as play:
        key = play.shop(groupName="GID_shop", enabled=False, broadcast=False, retry={"maxAttempts": 3})
        assert await play.once(key) == LATER_S
        for group in range(2):
            config = await play.group("GID_shop", group)
            assert config is not None
            wanted = (False, False, 3)
            assert (config.consume_enable, config.consume_broadcast_enable, config.retry_times_max) == wanted
        assert play.server.condition(key) == APPLIED
        assert play.server.condition(key, "Consuming") == ("False", "NoMembers")
        await play.brokers.put_group(play.member(0), GroupConfig("GID_shop", retry_queues=4))
        await play.once(key)
        config = await play.group("GID_shop")
        assert config is not None and (config.retry_times_max, config.retry_queues) == (3, 4)


async def test_a_group_is_orderly_when_that_is_asked_for_and_else_as_it_is(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        key = play.shop(groupName="GID_shop", orderly=True)
        await play.once(key)
        config = await play.group("GID_shop")
        assert config is not None and config.consume_orderly
        await play.brokers.put_group(play.member(0), GroupConfig("GID_shop"))
        await play.once(key)
        config = await play.group("GID_shop")
        assert config is not None and config.consume_orderly, "a change by hand is reverted"
        other = play.server.declare(Kind.CONSUMER_GROUP, "other", groupName="GID_other")
        await play.brokers.put_group(play.member(0), GroupConfig("GID_other", consume_orderly=True))
        await play.once(other)
        config = await play.group("GID_other")
        assert config is not None and config.consume_orderly, "without the field it stays"


async def test_members_and_lag_are_told_seldom(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        await play.once(play.tea(queues={"write": 1, "read": 1}))
        key = play.shop()
        await play.once(key)
        await play.produce(0)
        async with play.consuming(1):
            await play.once(key)
            assert play.server.condition(key, "Consuming") == ("True", "MembersOnline")
            assert play.server.status(key)["members"] == 1
        await play.produce(*[0] * 7)
        await play.once(key)
        assert play.server.status(key)["lag"] == [], "within a minute nobody looks again"
        play.clock.advance(int(LAG_S * 1000))
        await play.once(key)
        lag = {each["topic"]: each["messages"] for each in play.server.status(key)["lag"]}
        assert lag["tea"] == 7 and play.server.status(key)["members"] == 0


async def test_a_reset_is_carried_out_once_when_nobody_consumes(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        await play.once(play.tea(queues={"write": 1, "read": 1}))
        await play.produce(0, 0, 0)
        key = play.shop(resetOffset=EARLIEST)
        async with play.consuming(3):
            await play.once(key)
            assert play.server.condition(key, "OffsetReset") == ("False", "MembersOnline")
        assert await play.offsets("shop") == {0: 3}
        await play.once(key)
        assert play.server.condition(key, "OffsetReset") == ("True", "Done")
        assert play.server.status(key)["lastReset"]["result"] == "Done"
        assert await play.offsets("shop") == {0: 0}
        async with play.consuming(3):
            pass
        play.start()
        await play.once(key)
        assert await play.offsets("shop") == {0: 3}, "once for each request"
        with play.server.changed(key) as document:
            document["spec"]["resetOffset"]["requestId"] = "two"
        await play.once(key)
        assert await play.offsets("shop") == {0: 0}


async def test_a_reset_is_forced_on_members_where_that_is_asked_for(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        await play.once(play.tea(queues={"write": 1, "read": 1}))
        await play.produce(0, 0)
        key = play.shop(resetOffset=EARLIEST | {"force": True})
        async with play.consuming(2):
            await play.once(key)
            assert play.server.condition(key, "OffsetReset") == ("True", "Done")


async def test_of_two_operators_one_resets(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        await play.once(play.tea(queues={"write": 1, "read": 1}))
        await play.produce(0)
        key = play.shop(resetOffset=EARLIEST)
        play.server.faults = [409]
        await play.once(key)
        assert play.server.condition(key, "OffsetReset") == ("False", "Running")
        assert await play.offsets("shop") == {}, "the other one does it"
        await play.once(key)
        assert await play.offsets("shop") == {0: 0}


async def test_a_reset_that_was_broken_off_is_done_again(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        await play.once(play.tea(queues={"write": 1, "read": 1}))
        key = play.shop(resetOffset=EARLIEST)
        with play.server.changed(key) as document:
            document["status"] = {
                "lastReset": {"requestId": "one", "result": "Running", "at": "2023-11-14T22:13:20Z"}
            }
        await play.once(key)
        assert play.server.condition(key, "OffsetReset") == ("False", "Running")
        play.clock.advance(STALE_MS)
        await play.once(key)
        assert play.server.condition(key, "OffsetReset") == ("True", "Done")


async def test_a_reset_waits_for_every_group_and_for_its_topic(tmp_path: Path) -> None:
    async with playing(tmp_path, groups=2) as play:
        key = play.shop(resetOffset=EARLIEST)
        await play.once(key)
        assert play.server.condition(key, "OffsetReset") == ("False", "TopicNotFound")
        await play.once(play.tea())
        await play.cluster.stop(f"{CLUSTER}-b1")
        await play.once(key)
        assert play.server.condition(key, "OffsetReset") == ("False", "GroupUnavailable")
        assert "lastReset" not in play.server.status(key)
        await play.cluster.start(f"{CLUSTER}-b1")
        await play.once(key)
        assert play.server.condition(key, "OffsetReset") == ("True", "Done")


async def test_a_group_goes_with_its_object_and_its_offsets_with_it(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        await play.once(play.tea(queues={"write": 1, "read": 1}))
        await play.produce(0)
        key = play.shop(deletionPolicy="Delete")
        await play.once(key)
        await play.once(key)
        async with play.consuming(1):
            pass
        assert await play.topic("%RETRY%shop") is not None
        play.server.delete(key)
        await play.once(key)
        assert not play.server.has(key) and await play.group("shop") is None
        assert await play.offsets("shop") == {} and await play.topic("%RETRY%shop") is None


async def test_wherever_an_operator_dies_a_reset_is_carried_out_by_the_next_one(tmp_path: Path) -> None:
    async with playing(tmp_path) as play:
        await play.once(play.tea(queues={"write": 1, "read": 1}))
        await play.produce(0)
        for step in range(1, 10):
            key = play.server.declare(Kind.CONSUMER_GROUP, f"shop-{step}", resetOffset=EARLIEST)
            assert await play.die(key, step)  # group, change, members, lag, topic, Running, reset, Done, group again
            await play.once(key)
            assert play.server.condition(key, "OffsetReset") == ("True", "Done")
            assert await play.offsets(f"shop-{step}") == {0: 0}
