"""What a consumer does with its window, its memory, listeners and refusals."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from gantry.client.connections import session
from gantry.client.connections.replicas import Replicas
from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom
from gantry.client.consuming import intake
from gantry.client.puller import Puller
from gantry.errors import ConfigError
from gantry.leaves.frames import Command
from gantry.wire import heartbeat
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.onequeue import COMMIT, FIRST, PULL, OneQueue, member
from testkit.patience import HANG_S
from testkit.scripted import offset, refuse
from testkit.turning import until


async def test_pulling_stops_at_the_count_of_unfinished_messages_and_goes_on_when_some_end() -> None:
    settings = ConsumerSettings(start_from=StartFrom.FIRST, queue_messages_max=20, pull_wait_s=0.0)
    async with asyncio.timeout(HANG_S), OneQueue(count=100) as cluster, member(cluster, settings) as consumer:
        held = [await anext(consumer) for _ in range(20)]
        await asyncio.sleep(0.05)
        assert cluster.pulls() == [0, 10]
        await held[5].ack()
        await until(lambda: cluster.pulls()[2:] == [20])


async def test_pulling_stops_at_the_bytes_of_unfinished_messages() -> None:
    settings = ConsumerSettings(start_from=StartFrom.FIRST, bytes_max=500, pull_wait_s=0.0)
    async with asyncio.timeout(HANG_S), OneQueue(count=100) as cluster, member(cluster, settings) as consumer:
        held = [await anext(consumer) for _ in range(10)]
        await asyncio.sleep(0.05)
        assert cluster.pulls() == [0]
        for message in held:
            await message.ack()
        await until(lambda: len(cluster.pulls()) == 2)


async def test_an_empty_answer_that_was_not_held_does_not_make_the_consumer_hurry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, pulls, usual = asyncio.get_running_loop(), list[tuple[float, float]](), Replicas.pull

    async def pull(*arguments: object) -> object:
        begun_s = loop.time()
        answer = await usual(*arguments)  # type: ignore[arg-type]
        pulls.append((begun_s, loop.time()))
        return answer

    monkeypatch.setattr(Replicas, "pull", pull)
    async with asyncio.timeout(HANG_S), OneQueue(count=0) as cluster, member(cluster):
        await until(lambda: len(pulls) > 3)
    for (begun_s, ended_s), (next_s, _) in pairwise(pulls):
        was_held = ended_s - begun_s >= intake._HELD_S / 2  # a slow machine looks like a broker that holds
        assert was_held or next_s - ended_s >= intake._HELD_S


async def test_stopping_commits_the_smallest_unfinished_offset_and_says_goodbye() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=10) as cluster:
        async with member(cluster) as consumer:
            messages = [await anext(consumer) for _ in range(10)]
            for message in messages:
                if message.queue_offset != 3:
                    await message.ack()
        assert cluster.told()[-1] == 3
        goodbye = cluster.asked("broker-a", RequestCode.UNREGISTER_CLIENT)
        assert [command.ext["consumerGroup"] for command in goodbye] == ["g"]


async def test_an_offset_that_is_not_there_moves_the_consumer_to_where_the_broker_says() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=100) as cluster:
        cluster.answers["broker-a", RequestCode.QUERY_CONSUMER_OFFSET] = offset(500)
        usual = cluster.answers["broker-a", PULL]

        def moved(command: Command) -> Command | None:
            if int(command.ext["queueOffset"]) < 100:
                return usual(command)
            ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": "90", "minOffset": "0", "maxOffset": "100"}
            return reply(command, ResponseCode.PULL_OFFSET_MOVED, ext=ext)

        cluster.answers["broker-a", PULL] = moved
        async with member(cluster) as consumer:
            assert (await anext(consumer)).queue_offset == 90


async def test_a_member_that_begins_at_a_time_begins_where_another_one_stored_it() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=10) as cluster:
        cluster.answers["broker-a", RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = offset(7)

        def has_begun(command: Command) -> Command:
            is_first = "gantryFirst" in command.ext
            cluster.answers["broker-a", RequestCode.QUERY_CONSUMER_OFFSET] = offset(3)
            return reply(command, ext={"offset": "3"} if is_first else {})

        cluster.answers["broker-a", COMMIT] = has_begun
        settings = ConsumerSettings(start_from=StartFrom.TIMESTAMP, pull_wait_s=0.0)
        async with member(cluster, settings) as consumer:
            assert (await anext(consumer)).queue_offset == 3
        assert cluster.asked("broker-a", COMMIT)[0].ext["gantryFirst"] == "true"


@pytest.mark.parametrize(("ext", "expected"), [({"offset": "3"}, 3), ({}, 7)])
async def test_where_a_group_begins_is_what_the_broker_stored(ext: dict[str, str], expected: int) -> None:
    """A broker of RocketMQ or of an older version stores what it is told, and names nothing."""
    async with asyncio.timeout(HANG_S), OneQueue(count=7) as cluster, Puller("g", nameserver=cluster.nameserver) as at:
        cluster.answers["broker-a", COMMIT] = lambda command: reply(command, ext=ext)
        queue = (await at.queues("T"))[0]
        settings = ConsumerSettings(start_from=StartFrom.LAST)
        assert await at._offsets.commit_start(queue, settings, 0) == expected


async def test_an_answer_that_is_no_message_is_waited_out_and_breaks_nothing() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=10) as cluster:
        usual = cluster.answers["broker-a", PULL]
        ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": "10", "minOffset": "0", "maxOffset": "10"}
        cluster.answers["broker-a", PULL] = lambda command: reply(command, ext=ext, body=b"garbage")
        async with member(cluster) as consumer:
            await until(lambda: len(cluster.pulls()) >= 2)
            cluster.answers["broker-a", PULL] = usual
            assert (await anext(consumer)).queue_offset == 0


async def test_listeners_run_side_by_side_up_to_the_limit() -> None:
    running = 0
    most = 0
    go_on = asyncio.Event()
    finished = 0

    async def listener(message: ReceivedMessage) -> None:
        nonlocal running, most, finished
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1
        finished += 1

    settings = ConsumerSettings(start_from=StartFrom.FIRST, concurrency=3, pull_wait_s=0.0)
    async with asyncio.timeout(HANG_S), OneQueue(count=10) as cluster, member(cluster, settings, listener=listener):
        await until(lambda: running == 3)
        go_on.set()
        await until(lambda: finished == 10)
    assert most == 3


async def test_stopping_waits_for_a_running_listener_and_commits_what_it_did() -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        started.set()
        await go_on.wait()

    settings = ConsumerSettings(start_from=StartFrom.FIRST, concurrency=1, pull_wait_s=0.0)
    async with asyncio.timeout(HANG_S), OneQueue(count=10) as cluster:
        consumer = member(cluster, settings, listener=listener)
        await consumer.start()
        await started.wait()
        stopping = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0)
        go_on.set()
        await stopping
        assert cluster.committed()[-1] == 1


async def test_a_listener_that_does_not_end_is_cancelled_after_the_time_for_stopping() -> None:
    started = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        started.set()
        await asyncio.Event().wait()

    settings = ConsumerSettings(start_from=StartFrom.FIRST, stop_timeout_s=0.05, pull_wait_s=0.0)
    async with asyncio.timeout(HANG_S), OneQueue(count=1) as cluster:
        async with member(cluster, settings, listener=listener):
            await started.wait()
        assert 1 not in cluster.committed()


async def test_iteration_ends_when_the_consumer_stops() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=0) as cluster:
        consumer = member(cluster)
        await consumer.start()

        async def everything() -> list[ReceivedMessage]:
            return [message async for message in consumer]

        reading = asyncio.ensure_future(everything())
        await until(lambda: len(consumer.queues) == 1)
        await consumer.stop()
        assert await reading == []
        await consumer.wait()


async def test_a_request_that_a_client_does_not_serve_is_answered_so() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=0) as cluster, member(cluster):
        await until(lambda: cluster.pulls())
        (connection,) = cluster.connections("broker-a")
        answer = await connection.invoke(Command(RequestCode.GET_CONSUMER_RUNNING_INFO), 5.0)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_heartbeats_name_the_subscriptions() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=0) as cluster:
        async with Consumer("g", nameserver=cluster.nameserver, subscription={"T": "a || b"}, settings=FIRST):
            await until(lambda: cluster.asked("broker-a", RequestCode.HEART_BEAT))
        said = heartbeat.read(cluster.asked("broker-a", RequestCode.HEART_BEAT)[0].body)
        (consumer,) = said.consumers
        assert (consumer.group, consumer.message_model) == ("g", "CLUSTERING")
        assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
        subscription, retries = consumer.subscriptions
        assert (subscription.topic, subscription.tags) == ("T", ("a", "b"))
        assert (retries.topic, retries.expression) == ("%RETRY%g", "*")


@pytest.mark.parametrize(
    ("group", "subscription"), [("no blanks", {"T": "*"}), ("g", {"no blanks": "*"}), ("g", {})], ids=str
)
def test_names_that_are_none_are_configuration_errors(group: str, subscription: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        Consumer(group, nameserver="127.0.0.1:9876", subscription=subscription)


async def test_a_notice_that_comes_as_the_consumer_stops_does_not_keep_it_running() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=0) as cluster:
        consumer = member(cluster)
        await consumer.start()
        await until(lambda: len(consumer.queues) == 1)
        await asyncio.sleep(0.01)
        # Both within one turn of the loop: asyncio.wait_for would take the notice and forget the cancellation.
        consumer._source.members_changed()
        stopping = asyncio.ensure_future(consumer.stop())
        async with asyncio.timeout(HANG_S):
            await stopping


async def test_a_broker_that_refuses_the_heartbeat_is_named_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives a client that it does not take as a member nothing to consume, and nothing else says why."""
    monkeypatch.setattr(session, "HEARTBEAT_S", 0.01)
    beat = RequestCode.HEART_BEAT
    async with asyncio.timeout(HANG_S), OneQueue(count=1) as cluster:
        cluster.answers["broker-a", beat] = refuse(ResponseCode.SYSTEM_BUSY, "100 clients, the limit is 100")
        async with member(cluster, FIRST):
            await until(lambda: len(cluster.asked("broker-a", beat)) > 3)
        assert [record.getMessage() for record in caplog.records if "limit is 100" in record.getMessage()] == [
            f"{cluster.addresses['broker-a']}: the heartbeat of this client is refused: "
            "refused with code 2: 100 clients, the limit is 100"
        ]
