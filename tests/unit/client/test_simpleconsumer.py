"""What the simple consumer receives, settles, and gives back."""

from __future__ import annotations

import asyncio

import pytest

from gantry.client.simpleconsumer import PoppedMessage, SimpleConsumer, Sql, StartFrom
from gantry.errors import ClosedError, ConfigError, OutcomeUnknownError, RefusedError
from gantry.leaves.frames import Command, encode
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.heartbeat import read as read_heartbeat
from testkit.leasing import ACK, ACKS, CHANGE, NEWS, POP, LeasingCluster, by_broker
from testkit.patience import HANG_S
from testkit.scripted import NAMESERVER, ScriptedCluster, refuse
from testkit.turning import until


def member(cluster: ScriptedCluster, **more: object) -> SimpleConsumer:
    given = {"subscription": {"T": "*"}, **more}
    return SimpleConsumer("g", nameserver=cluster.nameserver, **given)  # type: ignore[arg-type]


async def test_messages_are_received_once_and_acknowledged_in_one_request() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 10}) as cluster, member(cluster) as consumer:
        first = await consumer.receive(6, 30.0)
        second = await consumer.receive(6, 30.0)
        assert [one.body for one in [*first, *second]] == [b"broker-a/%d" % number for number in range(10)]
        assert {command.ext["invisibleTime"] for command in cluster.asked("broker-a", POP)} == {"30000"}
        await consumer.ack([*first, *second])
        assert (cluster.acked(), len(cluster.asked("broker-a", ACKS))) == (list(range(10)), 1)
        assert await consumer.receive(wait_s=0.0) == []


async def test_a_message_that_was_not_settled_in_time_comes_again_and_its_old_receipt_counts_nothing() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster, member(cluster) as consumer:
        (late,) = await consumer.receive()
        cluster.expire()
        (again,) = await consumer.receive()
        assert (late.attempt, again.attempt, again.message_id) == (1, 2, late.message_id)
        await consumer.ack(late)
        assert cluster.left() == [0]
        await consumer.ack(again)
        assert (cluster.acked(), cluster.left()) == ([0], [])


async def test_a_changed_message_is_acknowledged_by_its_new_receipt() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster, member(cluster) as consumer:
        (message,) = await consumer.receive()
        await consumer.change_invisible(message, 2.5)
        await consumer.change_invisible(message, 60)
        await consumer.ack(message)
        assert (cluster.changes(), cluster.acked()) == ([2500, 60_000], [0])


async def test_all_topics_and_brokers_get_their_turn() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 100, "U": 100}, groups=2) as cluster:
        async with member(cluster, subscription={"T": "*", "U": "*"}) as consumer:
            for _ in range(8):
                await consumer.receive(5)
        assert {place: one.next for place, one in cluster.topics.items()} == dict.fromkeys(cluster.topics, 10)


async def test_a_broker_that_refuses_does_not_keep_the_messages_of_the_others() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 4}, groups=2) as cluster, member(cluster) as consumer:
        cluster.answers["broker-a", POP] = refuse(ResponseCode.SYSTEM_ERROR)
        received = [one.body for _ in range(4) for one in await consumer.receive(1)]
        assert by_broker(received) == {"broker-b": [0, 1, 2, 3]}


async def test_when_all_brokers_refuse_they_are_asked_again_and_the_error_is_raised_when_the_wait_is_over() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster, member(cluster) as consumer:
        usual, no = cluster.answers["broker-a", POP], refuse(ResponseCode.NO_PERMISSION, "not now")
        cluster.answers["broker-a", POP] = no
        with pytest.raises(RefusedError, match="not now"):
            await consumer.receive(wait_s=0.0)

        def later(command: Command) -> Command | None:
            return (usual if len(cluster.asked("broker-a", POP)) > 3 else no)(command)

        cluster.answers["broker-a", POP] = later
        assert [one.body for one in await consumer.receive(wait_s=HANG_S)] == [b"broker-a/0"]


async def test_while_there_is_nothing_one_request_waits_at_each_broker_and_the_next_call_uses_it() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 0}, groups=2) as cluster, member(cluster) as consumer:
        held: list[Command] = []
        for name in cluster.names:
            cluster.answers[name, NEWS] = held.append
        for _ in range(3):
            assert await consumer.receive(wait_s=0.05) == []
        assert len(held) == 2
        waiting = asyncio.ensure_future(consumer.receive(wait_s=HANG_S))
        await asyncio.sleep(0)
        cluster.topics["broker-b", "T"].count = 1
        (news,) = cluster.asked("broker-b", NEWS)
        (connection,) = cluster.connections("broker-b")
        answer = Command(0, opaque=news.opaque, flag=1, ext={"hasMsg": "true", "pollingFull": "false"})
        connection.write(encode(answer))
        assert [one.body for one in await waiting] == [b"broker-b/0"]


async def test_a_cancelled_call_gives_back_what_the_broker_had_given_out() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 3}) as cluster, member(cluster) as consumer:
        usual, held = cluster.answers["broker-a", POP], list[Command]()
        cluster.answers["broker-a", POP] = held.append
        call = asyncio.ensure_future(consumer.receive())
        await until(lambda: held)
        call.cancel()
        await asyncio.wait([call])
        answer = usual(held[0])
        assert answer is not None
        cluster.connections("broker-a")[0].write(encode(answer))
        await until(lambda: len(cluster.changes()) == 3)
        assert set(cluster.changes()) == {1000}


async def test_stopping_in_a_call_gives_back_what_it_was_about_to_return_and_says_goodbye() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 2}) as cluster:
        consumer = member(cluster)
        await consumer.start()
        usual, held = cluster.answers["broker-a", POP], list[Command]()
        cluster.answers["broker-a", POP] = held.append
        call = asyncio.ensure_future(consumer.receive())
        await until(lambda: held)
        stopping = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0)
        answer = usual(held[0])
        assert answer is not None
        cluster.connections("broker-a")[0].write(encode(answer))
        await stopping
        assert (await call, cluster.changes()) == ([], [1000, 1000])
        assert cluster.asked("broker-a", RequestCode.UNREGISTER_CLIENT)
        with pytest.raises(ClosedError, match="was stopped"):
            await consumer.receive()


async def test_tags_are_compared_here_too_because_brokers_compare_hashes() -> None:
    async with (
        asyncio.timeout(HANG_S),
        LeasingCluster({"T": 6}, tags=("Aa", "BB")) as cluster,
        member(cluster, subscription={"T": "Aa"}) as consumer,
    ):
        received = await consumer.receive()
        assert [one.body for one in received] == [b"broker-a/%d" % number for number in (0, 2, 4)]
        await until(lambda: cluster.acked() == [1, 3, 5])


async def test_brokers_are_told_of_the_kind_of_consumer_and_of_its_filter() -> None:
    wanted = {"T": Sql("a = 1")}
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster:
        async with member(cluster, subscription=wanted, start_from=StartFrom.FIRST) as consumer:
            await consumer.receive()
        (pop,) = cluster.asked("broker-a", POP)
        assert (pop.ext["expType"], pop.ext["exp"], pop.ext["initMode"]) == ("SQL92", "a = 1", "0")
        (data,) = read_heartbeat(cluster.asked("broker-a", RequestCode.HEART_BEAT)[0].body).consumers
        assert (data.consume_type, data.subscriptions[0].expression) == ("CONSUME_POP", "a = 1")


async def test_an_orderly_group_is_popped_in_order() -> None:
    config = b'{"groupName":"g","consumeMessageOrderly":true}'
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster, member(cluster) as consumer:
        cluster.answers["broker-a", RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG] = lambda command: Command(
            0, opaque=command.opaque, flag=1, body=config
        )
        await consumer.receive()
        assert [command.ext["order"] for command in cluster.asked("broker-a", POP)] == ["true"]


async def test_an_ack_goes_to_the_new_master_after_a_failover() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 2}) as cluster, member(cluster) as consumer:
        messages = await consumer.receive()
        await cluster.servers["broker-a"].close()
        await cluster.listen("broker-a/new")
        cluster.answers.update({("broker-a/new", code): cluster.answers["broker-a", code] for code in (ACK, ACKS)})
        cluster.leads["broker-a"] = "broker-a/new"
        await consumer.ack(messages)
        assert cluster.acked() == [0, 1]


async def test_a_change_whose_answer_is_lost_is_not_repeated() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster, member(cluster) as consumer:
        (message,) = await consumer.receive()

        def cut(_: Command) -> None:
            cluster.connections("broker-a")[0].abort("cut by the test")

        cluster.answers["broker-a", CHANGE] = cut
        with pytest.raises(OutcomeUnknownError):
            await consumer.change_invisible(message, 5)
        assert len(cluster.asked("broker-a", CHANGE)) == 1


async def test_a_dead_letter_of_rocketmq_s_brokers_is_sent_back_and_acknowledged() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 2}) as cluster, member(cluster) as consumer:
        first, second = await consumer.receive()
        await consumer.give_up(first)
        assert (cluster.topics["broker-a", "T"].dead, cluster.acked()) == ([0], [])
        cluster.answers["broker-a", RequestCode.FORWARD_TO_DLQ] = refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        await consumer.give_up(second)
        (back,) = cluster.asked("broker-a", RequestCode.CONSUMER_SEND_MSG_BACK)
        assert (back.ext["delayLevel"], back.ext["maxReconsumeTimes"], cluster.acked()) == ("-1", "0", [1])


async def test_a_topic_that_does_not_exist_is_an_error_after_the_wait() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 2}) as cluster:
        cluster.answers[NAMESERVER, RequestCode.GET_ROUTEINFO_BY_TOPIC] = refuse(ResponseCode.TOPIC_NOT_EXIST)
        async with member(cluster) as consumer:
            with pytest.raises(RefusedError, match="no broker has the topic T"):
                await consumer.receive(wait_s=0.0)


@pytest.mark.parametrize("given", [(0, 1.0, 0.0), (33, 1.0, 0.0), (1, 0.0, 0.0), (1, 1.0, -1.0)])
async def test_what_no_broker_takes_is_refused_before_anybody_is_asked(given: tuple[int, float, float]) -> None:
    count, invisible_s, wait_s = given
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster, member(cluster) as consumer:
        with pytest.raises(ValueError, match="expected 1 to 32"):
            await consumer.receive(count, invisible_s, wait_s=wait_s)


def test_a_start_at_a_time_is_refused_because_pops_know_none() -> None:
    with pytest.raises(ConfigError, match="TIMESTAMP"):
        SimpleConsumer("g", nameserver="h:1", subscription={"T": "*"}, start_from=StartFrom.TIMESTAMP)


async def test_a_message_without_a_receipt_cannot_be_settled() -> None:
    async with asyncio.timeout(HANG_S), LeasingCluster({"T": 1}) as cluster, member(cluster) as consumer:
        (message,) = await consumer.receive()
        with pytest.raises(ValueError, match="no receipt"):
            await consumer.ack(PoppedMessage(message.stored, None, "T"))
