"""What a consumer with mode "pop" does with messages, failures, lost answers and its end."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom
from gantry.client.consuming import popsettling
from gantry.errors import ClosedError, ConfigError
from gantry.leaves.frames import Command
from gantry.wire.bodies import dumps, loads
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from gantry.wire.heartbeat import read as read_heartbeat
from testkit.leasing import ACK, ACKS, CHANGE, DEAD, END, KEEP, POP, LeasingCluster
from testkit.patience import HANG_S
from testkit.scripted import refuse
from testkit.turning import until

FIRST = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=0.0)


def member(cluster: LeasingCluster, settings: ConsumerSettings = FIRST, **more: object) -> Consumer:
    given = {"subscription": {"T": "*"}, **more}
    return Consumer("g", nameserver=cluster.nameserver, settings=settings, mode="pop", **given)  # type: ignore[arg-type]


def orderly(command: Command) -> Command:
    """A group that consumes in order."""
    return reply(command, body=dumps({"groupName": "g", "consumeMessageOrderly": True}))


async def test_every_message_is_handled_once_and_acknowledged_many_in_one_request() -> None:
    seen: Counter[bytes] = Counter()

    async def listener(message: ReceivedMessage) -> None:
        seen[message.body] += 1

    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 100}, groups=2) as cluster:
        async with member(cluster, listener=listener) as consumer:
            await until(lambda: cluster.acked() == cluster.acked(name="broker-b") == list(range(100)))
            await until(lambda: not consumer._source._held)  # type: ignore[attr-defined]  # leases of these are renewed
        assert len(seen) == 200 and set(seen.values()) == {1}
        assert len(cluster.asked("broker-a", ACKS)) + len(cluster.asked("broker-a", ACK)) < 50
        (data,) = read_heartbeat(cluster.asked("broker-a", RequestCode.HEART_BEAT)[0].body).consumers
        assert data.consume_type == "CONSUME_POP"


async def test_a_failed_message_is_invisible_for_a_delay_that_grows_with_its_attempts() -> None:
    attempts: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        attempts.append(message.attempt)
        if message.attempt < 4:
            raise RuntimeError("not yet")

    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster, member(cluster, listener=listener):
        for count in (1, 2, 3):
            await until(lambda count=count: len(cluster.changes()) == count)  # type: ignore[misc]
            cluster.expire()
        await until(lambda: cluster.acked() == [0])
        assert (attempts, cluster.changes()) == ([1, 2, 3, 4], [1000, 5000, 10_000])


async def test_a_listener_chooses_the_delay_or_gives_up() -> None:
    async def listener(message: ReceivedMessage) -> None:
        match int(message.body.rpartition(b"/")[2]):
            case 0:
                await message.retry(after_s=2.5)
            case 1:
                await message.retry(level=4)
            case 2:
                await message.give_up()

    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 4}) as cluster, member(cluster, listener=listener):
        await until(lambda: cluster.acked() == [3] and cluster.topics["broker-a", "T"].dead == [2])
        await until(lambda: sorted(cluster.changes()) == [2500, 30_000])
        assert cluster.left() == [0, 1]


async def test_after_the_redeliveries_of_the_settings_a_message_is_a_dead_letter() -> None:
    async def listener(_: ReceivedMessage) -> None:
        raise RuntimeError("never")

    settings = replace(FIRST, redeliveries_max=1)
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster, member(
        cluster, settings, listener=listener
    ):
        await until(cluster.changes)
        cluster.expire()
        await until(lambda: cluster.topics["broker-a", "T"].dead == [0])
        assert cluster.changes() == [1000]


@pytest.mark.parametrize("code", [ACK, CHANGE, DEAD], ids=["ack", "change", "dead"])
async def test_what_a_broker_did_not_answer_is_repeated_because_it_renews_the_lease(
    code: RequestCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listener(message: ReceivedMessage) -> None:
        if code == CHANGE:
            await message.retry()
        if code == DEAD:
            await message.give_up()

    # One attempt in a round, so that it is another round that succeeds.
    monkeypatch.setattr(popsettling, "_WITHIN_S", 0.01)
    monkeypatch.setattr(popsettling, "_PAUSE_S", 0.01)
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster:
        usual = cluster.answers["broker-a", code]

        def lost(command: Command) -> None:
            for connection in cluster.connections("broker-a"):
                connection.abort("cut by the test")

        cluster.answers["broker-a", code] = lost
        async with member(cluster, listener=listener):
            await until(lambda: len(cluster.asked("broker-a", code)) > 2)
            cluster.answers["broker-a", code] = usual
            monkeypatch.undo()  # an attempt on a busy machine takes longer
            one = cluster.topics["broker-a", "T"]
            await until(lambda: one.acked or one.dead or len(cluster.changes()) > 3)


async def test_stopping_waits_for_listeners_gives_back_what_was_not_begun_and_then_says_that_it_ends() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def listener(_: ReceivedMessage) -> None:
        begun.set()
        await may_end.wait()

    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 10}) as cluster:
        consumer = member(cluster, replace(FIRST, concurrency=2), listener=listener)
        await consumer.start()
        await begun.wait()
        stopping = asyncio.ensure_future(consumer.stop())
        await until(lambda: len(cluster.changes()) == 8)
        may_end.set()
        await stopping
        assert (cluster.acked(), cluster.changes()) == ([0, 1], [1000] * 8)
        last = [command.code for name, command in cluster.received if name == "broker-a"][-2:]
        assert last == [END, RequestCode.UNREGISTER_CLIENT]
        (end,) = cluster.asked("broker-a", END)
        assert end.ext == {"clientId": consumer.client_id, "consumerGroup": "g"}


async def test_after_the_stop_a_message_in_hand_is_given_back_and_its_ack_says_so() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster:
        consumer = member(cluster)
        await consumer.start()
        message = await anext(consumer)
        await consumer.stop()
        assert (cluster.changes(), cluster.acked()) == ([1000], [])
        with pytest.raises(ClosedError, match="too late"):
            await message.ack()
        with pytest.raises(ClosedError, match="too late"):
            await message.retry()


async def test_a_broker_is_told_of_a_pop_whose_answer_was_lost_because_it_would_renew_what_that_took() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster:
        usual = cluster.answers["broker-a", POP]

        def lost(command: Command) -> None:
            cluster.answers["broker-a", POP] = usual
            for connection in cluster.connections("broker-a"):
                connection.abort("cut by the test")

        cluster.answers["broker-a", POP] = lost
        async with member(cluster):
            await until(lambda: cluster.asked("broker-a", END))
        first, second, *_ = [pop.ext["gantryPop"] for pop in cluster.asked("broker-a", POP)]
        told = cluster.asked("broker-a", END)[0]
        assert (loads(told.body), told.ext) == ({"pops": [first]}, {"clientId": ""})
        assert first != second


async def test_what_is_given_back_is_sent_again_when_the_answer_was_lost() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster:
        usual = cluster.answers["broker-a", CHANGE]

        def lost(command: Command) -> None:
            cluster.answers["broker-a", CHANGE] = usual
            for connection in cluster.connections("broker-a"):
                connection.abort("cut by the test")

        cluster.answers["broker-a", CHANGE] = lost
        consumer = member(cluster)
        await consumer.start()
        await anext(consumer)
        await consumer.stop()
        assert cluster.changes() == [1000, 1000]


async def test_brokers_are_told_that_the_owner_of_the_leases_lives() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}, groups=2) as cluster, member(cluster) as consumer:
        await anext(consumer)
        await until(lambda: all(cluster.asked(name, KEEP) for name in cluster.names))
        assert cluster.asked("broker-a", KEEP)[0].body == dumps({"clientId": consumer.client_id, "groups": ["g"]})
        assert {command.ext["gantryOwner"] for command in cluster.asked("broker-a", POP)} == {consumer.client_id}


async def test_where_the_broker_does_not_renew_the_client_changes_the_time_and_acknowledges_the_new_receipt() -> None:
    settings = replace(FIRST, pop_invisible_s=1.0)
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster:
        cluster.answers["broker-a", KEEP] = refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        async with member(cluster, settings) as consumer:
            message = await anext(consumer)
            await until(lambda: len(cluster.changes()) >= 2)
            await message.ack()
            await until(lambda: cluster.acked() == [0])
            assert set(cluster.changes()) == {1000}
        assert not cluster.asked("broker-a", END)


async def test_unfinished_messages_are_bounded_and_popping_goes_on_as_they_end() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 500}) as cluster, member(cluster) as consumer:
        held = [await anext(consumer) for _ in range(64)]
        pops = len(cluster.asked("broker-a", POP))
        await asyncio.sleep(0.05)
        assert (len(cluster.asked("broker-a", POP)), cluster.topics["broker-a", "T"].next) == (pops, 64)
        await held[5].ack()
        assert (await anext(consumer)).body == b"broker-a/64"
        assert len(consumer._source._held) == 64  # type: ignore[attr-defined]


async def test_members_of_a_group_share_the_messages_of_one_queue() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 200}) as cluster, member(cluster) as first:
        async with member(cluster) as second:
            taken: dict[str, int] = {}

            async def take(name: str, consumer: Consumer) -> None:
                async for message in consumer:
                    taken[name] = taken.get(name, 0) + 1
                    await message.ack()

            tasks = [asyncio.ensure_future(take(name, one)) for name, one in (("a", first), ("b", second))]
            await until(lambda: cluster.acked() == list(range(200)))
            assert sum(taken.values()) == 200 and len(taken) == 2
        for task in tasks:
            task.cancel()


async def test_an_orderly_group_is_popped_queue_by_queue_and_one_message_at_a_time() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 3}) as cluster:
        cluster.answers["broker-a", RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG] = orderly
        async with member(cluster) as consumer:
            for number in range(3):
                message = await anext(consumer)
                assert message.body == b"broker-a/%d" % number
                pops = cluster.asked("broker-a", POP)
                await asyncio.sleep(0.02)
                assert len(cluster.asked("broker-a", POP)) == len(pops)
                await message.ack()
            asked = {(pop.ext["order"], pop.ext["queueId"], pop.ext["maxMsgNums"]) for pop in pops}
            assert asked == {("true", "0", "1")}
            assert not any("gantryOwner" in pop.ext for pop in pops)
            assert len({pop.ext["attemptId"] for pop in pops}) == len(pops)


async def test_an_orderly_pop_whose_answer_is_lost_is_repeated_under_its_id() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster:
        cluster.answers["broker-a", RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG] = orderly
        usual = cluster.answers["broker-a", POP]

        def lost(_: Command) -> None:
            cluster.answers["broker-a", POP] = usual
            for connection in cluster.connections("broker-a"):
                connection.abort("cut by the test")

        cluster.answers["broker-a", POP] = lost
        async with member(cluster) as consumer:
            await anext(consumer)
            first, second = cluster.asked("broker-a", POP)[:2]
            assert first.ext["attemptId"] == second.ext["attemptId"]


async def test_what_was_sent_back_or_replayed_to_the_group_s_retry_topic_is_popped_too() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 0, "%RETRY%g": 1}) as cluster:
        cluster.has_retry_topics = True
        async with member(cluster) as consumer:
            message = await anext(consumer)
            await message.ack()
            await until(lambda: cluster.acked("%RETRY%g") == [0])
            assert {place.topic for place in consumer.queues} == {"T"}


def test_what_cannot_be_is_refused() -> None:
    for settings, mode in ((replace(FIRST, broadcast=True), "pop"), (FIRST, "push")):
        with pytest.raises(ConfigError, match="mode is"):
            Consumer("g", nameserver="h:1", subscription={"T": "*"}, settings=settings, mode=mode)
