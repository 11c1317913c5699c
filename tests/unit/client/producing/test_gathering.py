"""Sends of one turn of the loop that leave as one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gantry.client.outgoing import Outgoing
from gantry.client.producer import Message, Producer, ProducerSettings, SendResult
from gantry.client.producing.gathering import Gathering, _Batch
from gantry.errors import OutcomeUnknownError, RefusedError
from gantry.leaves import properties, records
from gantry.leaves.frames import Command, encode
from gantry.leaves.requests import LANGUAGES
from gantry.model.route import MessageQueue
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.patience import HANG_S
from testkit.scripted import ScriptedCluster, refuse, silence, stored
from testkit.turning import until

SINGLE, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
QUICK = ProducerSettings(timeout_s=1.5, attempt_timeout_s=0.5)


def bodies(command: Command) -> list[bytes]:
    if command.code == BATCH:
        return [body for _, body, _ in records.split_batch(command.body)]
    return [command.body]


def sent(cluster: ScriptedCluster) -> list[list[bytes]]:
    """The bodies of each request, in the order in which they came."""
    return [bodies(command) for _, command in cluster.received if command.code in (SINGLE, BATCH)]


def ids(command: Command) -> list[str]:
    packed = [own for _, _, own in records.split_batch(command.body)]
    return [properties.parse(own)["UNIQ_KEY"] for own in packed]


@asynccontextmanager
async def playing(
    queues: int = 1, language: str = "PYTHON", settings: ProducerSettings | None = None
) -> AsyncIterator[tuple[ScriptedCluster, Producer]]:
    """A producer whose broker has answered its first heartbeat, and has a first message."""

    def greeted(command: Command) -> Command:
        answer = reply(command)
        answer.language = LANGUAGES.index(language)
        return answer

    async with asyncio.timeout(HANG_S), ScriptedCluster(queues=queues) as cluster:
        cluster.answers["broker-a", RequestCode.HEART_BEAT] = greeted
        producer = Producer("p", nameserver=cluster.nameserver, settings=settings)
        async with producer:
            await producer.send(Message("T", b"first"))
            cluster.received.clear()
            yield cluster, producer


async def gathered(producer: Producer, *messages: Message, key: str = "") -> list[SendResult | BaseException]:
    return await asyncio.gather(*(producer.send(one, key=key) for one in messages), return_exceptions=True)


def numbered(count: int) -> list[Message]:
    return [Message("T", b"%d" % number, tags="t", keys=f"k-{number}") for number in range(count)]


async def test_sends_of_one_turn_are_one_request_and_each_gets_its_own_result() -> None:
    async with playing() as (cluster, producer):
        results = await gathered(producer, *numbered(10))
        (alone,) = cluster.asked("broker-a", SINGLE)
        (batch,) = cluster.asked("broker-a", BATCH)
        assert bodies(alone) == [b"0"] and bodies(batch) == [b"%d" % number for number in range(1, 10)]
        assert batch.ext["i"] == "", "properties of the request would be added to every message"
        good = [one for one in results if isinstance(one, SendResult)]
        assert [one.message_id for one in good[1:]] == ids(batch) and len(set(ids(batch))) == 9
        assert [one.queue_offset for one in good] == [7, *range(7, 16)], "a batch begins at the offset of its answer"
        assert all(len(one.message_ids) == len(one.offset_message_ids) == 1 for one in good)


async def test_each_queue_has_a_request_of_its_own() -> None:
    async with playing(queues=2) as (cluster, producer):
        await gathered(producer, *numbered(9))
        assert [len(one) for one in sent(cluster)] == [1, 4, 4]
        assert len({command.ext["e"] for command in cluster.asked("broker-a", BATCH)}) == 2


async def test_one_bad_message_is_refused_and_the_others_of_its_batch_are_stored() -> None:
    def answer(command: Command) -> Command:
        return refuse(ResponseCode.MESSAGE_ILLEGAL)(command) if b"bad" in bodies(command) else stored(command)

    async with playing() as (cluster, producer):
        cluster.answers["broker-a", BATCH] = cluster.answers["broker-a", SINGLE] = answer
        _, *results = await gathered(producer, *numbered(3), Message("T", b"bad"), Message("T", b"last"))
        assert [type(one) for one in results] == [SendResult, SendResult, RefusedError, SendResult]
        assert sent(cluster)[2:] == [[b"1"], [b"2"], [b"bad"], [b"last"]], "again, in the order of the calls"
        cluster.received.clear()
        await gathered(producer, *numbered(3))
        assert sent(cluster) == [[b"0"], [b"1"], [b"2"]], "its topic goes singly for a while"


async def test_a_refusal_for_now_is_each_messages_own_and_tried_again_singly() -> None:
    async with playing() as (cluster, producer):
        cluster.answers["broker-a", BATCH] = refuse(ResponseCode.SYSTEM_BUSY)
        results = await gathered(producer, *numbered(4))
        assert all(isinstance(one, SendResult) for one in results)
        again = sent(cluster)[2:]
        assert sorted(again) == [[b"1"], [b"2"], [b"3"]]


async def test_without_an_answer_the_outcome_of_each_is_unknown_and_a_retry_has_the_same_id() -> None:
    async with playing(settings=QUICK) as (cluster, producer):
        cluster.answers["broker-a", BATCH] = silence
        cluster.answers["broker-a", SINGLE] = silence
        results = await gathered(producer, *numbered(4))
        assert [type(one) for one in results] == [OutcomeUnknownError] * 4
        assert len({id(one) for one in results}) == 4, "an error that is raised twice has the traces of both"
        (batch,) = cluster.asked("broker-a", BATCH)
        again = {properties.parse(one.ext["i"].encode())["UNIQ_KEY"] for one in cluster.asked("broker-a", SINGLE)}
        assert set(ids(batch)) <= again


async def test_an_answer_that_does_not_name_every_message_is_no_acknowledgement() -> None:
    async with playing(settings=QUICK) as (cluster, producer):
        ext = {"msgId": "0A" * 16, "queueId": "0", "queueOffset": "7"}
        cluster.answers["broker-a", BATCH] = lambda command: reply(command, ext=ext)
        cluster.answers["broker-a", SINGLE] = silence
        _, *results = await gathered(producer, *numbered(3))
        assert [type(one) for one in results] == [OutcomeUnknownError] * 2
        assert len(cluster.asked("broker-a", BATCH)) == 1


async def test_a_message_of_a_refused_batch_for_which_no_time_is_left_gets_the_refusal() -> None:
    class Corked:
        def cork(self) -> bool:
            return False

    gathering = Gathering(None, "p")  # type: ignore[arg-type]
    gathering._loop = asyncio.get_running_loop()
    outgoing = Outgoing("T", b"x", b"", ("id",), 0)
    posts = [(gathering._loop.create_future(), outgoing) for _ in range(2)]
    batch = _Batch(Corked(), MessageQueue("T", "broker-a", 0), 1.0, 0.0)  # type: ignore[arg-type]
    gathering._leave_singly(batch, posts, RefusedError(13, "the message body has 9 bytes, 8 are allowed"))
    for future, _ in posts:
        error = future.exception()
        assert isinstance(error, RefusedError) and "8 are allowed" in error.remark


async def test_stored_but_not_kept_for_sure_is_unknown_for_each() -> None:
    async with playing(settings=QUICK) as (cluster, producer):
        ext = {"msgId": "0A" * 16, "queueId": "0", "queueOffset": "7"}
        answer = lambda command: reply(command, ResponseCode.FLUSH_SLAVE_TIMEOUT, ext=ext)  # noqa: E731
        cluster.answers["broker-a", BATCH] = cluster.answers["broker-a", SINGLE] = answer
        results = await gathered(producer, *numbered(3))
        assert [type(one) for one in results] == [OutcomeUnknownError] * 3


async def test_a_send_that_is_cancelled_in_its_turn_is_not_sent_and_the_others_are() -> None:
    async with playing() as (cluster, producer):
        sends = [asyncio.ensure_future(producer.send(one)) for one in numbered(4)]
        asyncio.get_running_loop().call_soon(sends[2].cancel)
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert isinstance(results[2], asyncio.CancelledError)
        assert sent(cluster) == [[b"0"], [b"1", b"3"]]


async def test_a_send_that_is_cancelled_while_its_batch_is_under_way_leaves_the_others_their_results() -> None:
    held: list[Command] = []

    async with playing() as (cluster, producer):
        cluster.answers["broker-a", BATCH] = held.append  # type: ignore[assignment]
        sends = [asyncio.ensure_future(producer.send(one)) for one in numbered(4)]
        await until(lambda: bool(held))
        sends[2].cancel()
        (connection,) = cluster.connections("broker-a")
        connection.write(encode(stored(held[0])))
        results = await asyncio.gather(*sends, return_exceptions=True)
        offsets = [one.queue_offset if isinstance(one, SendResult) else None for one in results]
        assert offsets == [7, 7, None, 9]


async def test_messages_of_one_queue_leave_in_the_order_of_the_calls_whatever_leaves_by_itself() -> None:
    large, later = Message("T", b"L" * 9000), Message("T", b"later", delay_level=3)
    async with playing() as (cluster, producer):
        one = numbered(7)
        await gathered(producer, *one[:3], large, *one[3:5], later, *one[5:])
        found = sent(cluster)
        assert [len(request) for request in found] == [1, 2, 1, 2, 1, 2], "both left by themselves"
        flat = [body if body.isdigit() or body == b"later" else b"large" for request in found for body in request]
        assert flat == [b"0", b"1", b"2", b"large", b"3", b"4", b"later", b"5", b"6"]


async def test_requests_leave_together_like_other_messages() -> None:
    async with playing() as (cluster, producer):
        asked = asyncio.gather(*(producer.request(one, timeout_s=HANG_S) for one in numbered(3)))  # nobody answers
        await until(lambda: len(sent(cluster)) == 2)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert sent(cluster) == [[b"0"], [b"1", b"2"]]


async def test_a_oneway_send_leaves_behind_what_was_gathered_before() -> None:
    async with playing() as (cluster, producer):
        await asyncio.gather(*map(producer.send, numbered(3)), producer.send_oneway(Message("T", b"oneway")))
        await until(lambda: len(sent(cluster)) == 3)
        assert sent(cluster) == [[b"0"], [b"1", b"2"], [b"oneway"]]


@pytest.mark.parametrize("why", ["RocketMQ's broker", "settings", "retry topic"])
async def test_what_may_not_be_gathered_leaves_singly(why: str) -> None:
    language = "JAVA" if why == "RocketMQ's broker" else "PYTHON"
    async with playing(language=language, settings=ProducerSettings(batches=why != "settings")) as (cluster, producer):
        cluster.has_retry_topics = True
        topic = "%RETRY%g" if why == "retry topic" else "T"
        await gathered(producer, *(Message(topic, b"%d" % number) for number in range(4)))
        assert [len(one) for one in sent(cluster)] == [1, 1, 1, 1]


async def test_sends_with_different_time_outs_do_not_share_a_request() -> None:
    async with playing() as (cluster, producer):
        cluster.answers["broker-a", BATCH] = silence
        cluster.answers["broker-a", SINGLE] = silence
        begun = asyncio.get_running_loop().time()
        patient = [asyncio.ensure_future(producer.send(one, timeout_s=HANG_S)) for one in numbered(3)]
        hasty = [asyncio.ensure_future(producer.send(one, timeout_s=0.2)) for one in numbered(2)]
        results = await asyncio.gather(*hasty, return_exceptions=True)
        assert [type(one) for one in results] == [OutcomeUnknownError] * 2
        assert asyncio.get_running_loop().time() - begun > 0.15
        assert [len(one) for one in sent(cluster)] == [1, 2, 2]
        for one in patient:
            one.cancel()


async def test_a_stopped_producer_leaves_no_gathered_send_waiting() -> None:
    async with playing() as (_, producer):
        sends = [asyncio.ensure_future(producer.send(one)) for one in numbered(5)]
        await asyncio.sleep(0)
        await producer.stop()
        await asyncio.wait(sends)
        assert all(one.done() for one in sends)
        await asyncio.gather(*sends, return_exceptions=True)
