"""Messages that failed: sent back to the broker, or kept in place where it does not take them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom
from gantry.client.consuming.redelivery import Redelivery, level_of
from gantry.leaves import frames, properties, records
from gantry.leaves.frames import Command
from gantry.model.route import MessageQueue
from gantry.wire import heartbeat
from gantry.wire.bodies import dumps
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.patience import HANG_S
from testkit.scripted import ScriptedCluster, offset, refuse, silence
from testkit.turning import until

PULL, BACK, COMMIT = (
    RequestCode.PULL_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.UPDATE_CONSUMER_OFFSET,
)
RETRY = "%RETRY%g"


def settings(**more: object) -> ConsumerSettings:
    given = {"start_from": StartFrom.FIRST, "pull_wait_s": 0.0, "retry_delays_s": (0.01,), "commit_every_s": 0.02}
    return ConsumerSettings(**given | more)  # type: ignore[arg-type]


class Broker(ScriptedCluster):
    """One broker with a queue of T that has some messages, and a queue of redeliveries that has one."""

    def __init__(self, count: int = 3, redelivered: int = 0) -> None:
        super().__init__(queues=1)
        self.has_retry_topics = redelivered > 0
        self.counts = {"T": count, RETRY: redelivered}
        broker = self.names[0]
        self.answers[broker, RequestCode.GET_CONSUMER_LIST_BY_GROUP] = self._members
        self.answers[broker, PULL] = self._pull
        self.answers[broker, RequestCode.QUERY_CONSUMER_OFFSET] = refuse(ResponseCode.QUERY_NOT_FOUND)
        self.answers[broker, RequestCode.GET_MIN_OFFSET] = offset(0)
        self.answers[broker, RequestCode.GET_MAX_OFFSET] = offset(max(count, redelivered))

    def backs(self) -> list[tuple[str, str]]:
        """(log offset, level) of what was sent back."""
        return [(command.ext["offset"], command.ext["delayLevel"]) for command in self.asked("broker-a", BACK)]

    def committed(self, topic: str = "T") -> list[int]:
        found = [command.ext for command in self.asked("broker-a", COMMIT) if command.ext["topic"] == topic]
        return [int(ext["commitOffset"]) for ext in found]

    def _members(self, command: Command) -> Command:
        beats = self.asked("broker-a", RequestCode.HEART_BEAT)
        ids = {heartbeat.read(beat.body).client_id for beat in beats}
        return reply(command, body=dumps({"consumerIdList": sorted(ids)}))

    def _pull(self, command: Command) -> Command:
        topic, start = command.ext["topic"], int(command.ext["queueOffset"])
        end = self.counts[topic]
        ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": str(end), "minOffset": "0", "maxOffset": str(end)}
        if start >= end:
            return reply(command, ResponseCode.PULL_NOT_FOUND, ext=ext)
        return reply(command, ext=ext, body=b"".join(record(topic, number) for number in range(start, end)))


def record(topic: str, number: int) -> bytes:
    """The bytes of one stored message; a redelivery says where it was sent to."""
    pairs = {"UNIQ_KEY": f"K{number}"} | ({"RETRY_TOPIC": "T"} if topic == RETRY else {})
    send = frames.Send(topic=topic, body=b"%d" % number, born_host=bytes(8), properties=properties.pack(pairs))
    send.reconsume_times = 4 if topic == RETRY else 0
    send.queue_offset = number
    out = bytearray(records.size_of(send))
    records.encode_run(out, 0, 1000 * number, [send], 1, bytes(8))
    return bytes(out)


def member(cluster: ScriptedCluster, given: ConsumerSettings | None = None, **more: object) -> Consumer:
    return Consumer(
        "g",
        nameserver=cluster.nameserver,
        subscription={"T": "*"},
        settings=given or settings(),
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("after_s", "level"), [(0, 1), (0.5, 1), (1, 1), (1.1, 2), (10, 3), (11, 4), (7200, 18), (1e9, 18)]
)
def test_seconds_become_the_first_level_that_is_no_shorter(after_s: float, level: int) -> None:
    assert level_of(after_s) == level


async def test_a_message_that_failed_is_sent_back_as_it_asks_and_progress_passes_it() -> None:
    async with asyncio.timeout(HANG_S), Broker() as cluster:
        async with member(cluster) as consumer:
            for wish in ({}, {"after_s": 11.0}, {"level": 2}):
                await (await anext(consumer)).retry(**wish)
        assert cluster.backs() == [("0", "0"), ("1000", "4"), ("2000", "2")]
        assert cluster.committed()[-1] == 3
        ext = cluster.asked("broker-a", BACK)[0].ext
        assert (ext["group"], ext["originTopic"], ext["originMsgId"]) == ("g", "T", "K0")
        assert "maxReconsumeTimes" not in ext


async def test_a_message_can_be_given_up_and_the_number_of_attempts_chosen() -> None:
    async with asyncio.timeout(HANG_S), Broker() as cluster, member(cluster, settings(redeliveries_max=5)) as consumer:
        await (await anext(consumer)).give_up()
        assert cluster.backs() == [("0", "-1")]
        assert cluster.asked("broker-a", BACK)[0].ext["maxReconsumeTimes"] == "5"


@pytest.mark.parametrize("wish", [{"after_s": -1.0}, {"level": -1}, {"after_s": 1.0, "level": 1}])
async def test_a_wish_that_cannot_be_meant_is_an_error_and_changes_nothing(wish: dict[str, float]) -> None:
    async with asyncio.timeout(HANG_S), Broker() as cluster, member(cluster) as consumer:
        with pytest.raises(ValueError, match="after_s"):
            await (await anext(consumer)).retry(**wish)  # type: ignore[arg-type]
        assert cluster.backs() == []


@pytest.mark.parametrize("answer", [refuse(ResponseCode.SYSTEM_ERROR), refuse(ResponseCode.FLUSH_DISK_TIMEOUT)])
async def test_what_is_not_taken_back_stays_and_comes_again_in_place_until_it_is(answer: object) -> None:
    async with asyncio.timeout(HANG_S), Broker(count=1) as cluster:
        cluster.answers["broker-a", BACK] = answer  # type: ignore[assignment]
        async with member(cluster) as consumer:
            for attempt in (1, 2, 3):
                message = await anext(consumer)
                assert (message.queue_offset, message.attempt) == (0, attempt)
                await message.retry()
                await consumer.commit()
                assert 1 not in cluster.committed()
            del cluster.answers["broker-a", BACK]
            await (await anext(consumer)).retry()
        assert len(cluster.backs()) == 4
        assert cluster.committed()[-1] == 1


async def test_while_it_is_on_its_way_nobody_else_can_be_done_with_it() -> None:
    async with asyncio.timeout(HANG_S), Broker(count=1) as cluster, member(cluster) as consumer:
        cluster.answers["broker-a", BACK] = silence
        message = await anext(consumer)
        first = asyncio.ensure_future(message.retry())
        await until(lambda: len(cluster.backs()) == 1)
        await message.retry()
        await message.ack()
        await consumer.commit()
        assert len(cluster.backs()) == 1
        assert 1 not in cluster.committed()
        first.cancel()


async def test_a_listener_that_fails_has_its_message_sent_back() -> None:
    async def listener(message: ReceivedMessage) -> None:
        if message.queue_offset == 1:
            raise RuntimeError("sour")

    async with asyncio.timeout(HANG_S), Broker() as cluster, member(cluster, listener=listener):
        await until(lambda: cluster.backs() == [("1000", "0")])
        # By a request of its own or with a pull, whichever comes first.
        await until(lambda: any(command.ext.get("commitOffset") == "3" for _, command in cluster.received))


async def test_a_redelivery_comes_under_the_topic_it_was_sent_to_whatever_the_group_s_start() -> None:
    async with asyncio.timeout(HANG_S), Broker(count=0, redelivered=1) as cluster:
        async with member(cluster, settings(start_from=StartFrom.LAST)) as consumer:
            message = await anext(consumer)
            assert (message.topic, message.queue.topic) == ("T", RETRY)
            assert (message.reconsume_times, message.attempt) == (4, 5)
            assert [queue.topic for queue in consumer.queues] == ["T"]
            await message.retry()
        ext = cluster.asked("broker-a", BACK)[0].ext
        assert ext["originTopic"] == "T"
        assert cluster.committed(RETRY)[-1] == 1


async def test_members_that_broadcast_keep_their_failures() -> None:
    async with asyncio.timeout(HANG_S):
        async with Broker(count=1, redelivered=1) as cluster, member(cluster, settings(broadcast=True)) as consumer:
            await (await anext(consumer)).retry()
            again = await anext(consumer)
            assert (again.topic, again.attempt, cluster.backs()) == ("T", 2, [])
            said = heartbeat.read(cluster.asked("broker-a", RequestCode.HEART_BEAT)[0].body)
            assert [one.topic for one in said.consumers[0].subscriptions] == ["T"]


async def test_a_queue_that_went_to_another_member_takes_its_waiting_messages_along() -> None:
    async with asyncio.timeout(HANG_S), Broker(count=2) as cluster:
        cluster.answers["broker-a", BACK] = refuse(ResponseCode.SYSTEM_ERROR)
        async with member(cluster, settings(retry_delays_s=(0.3,))) as consumer:
            waiting, held = await anext(consumer), await anext(consumer)
            await waiting.retry()
            members = dumps({"consumerIdList": ["0-comes-first", consumer.client_id]})
            cluster.answers["broker-a", RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda command: reply(
                command, body=members
            )
            consumer._source.members_changed()
            await until(lambda: consumer.queues == [])
            await held.retry()  # while its queue is handed over the broker may still take it back
            assert len(cluster.backs()) == 2
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(consumer), 0.5)


class Failed:
    """A message that waits to be handed out again."""

    queue = MessageQueue("T", "broker-a", 0)
    attempt = 1

    def following(self) -> Failed:
        return self


async def test_a_message_that_was_handed_out_again_or_went_with_its_queue_waits_no_more() -> None:
    handed: list[Any] = []
    none: Any = None
    message: Any = Failed()
    redelivery = Redelivery(none, none, "g", settings(), lambda intake, again: handed.append(again))
    redelivery._keep(none, message, None)
    await until(lambda: handed == [message])
    assert not redelivery._waiting
    redelivery._keep(none, message, 3600.0)
    (timer,) = redelivery._waiting.values()
    redelivery.drop([MessageQueue("T", "broker-a", 1)])
    assert not timer.cancelled()
    redelivery.drop([message.queue])
    assert timer.cancelled() and not redelivery._waiting
