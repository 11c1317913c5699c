"""What a producer does when brokers refuse, fall silent or disappear."""

from __future__ import annotations

import asyncio

import pytest

from gantry.client.producer import Message, Producer, ProducerSettings
from gantry.errors import ConfigError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.leaves import properties
from gantry.leaves.frames import Command
from gantry.model.route import MessageQueue
from gantry.wire import heartbeat
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.patience import HANG_S
from testkit.scripted import NAMESERVER, ScriptedCluster, refuse, silence
from testkit.turning import until

SEND = RequestCode.SEND_MESSAGE_V2
QUICK = ProducerSettings(timeout_s=1.5, attempt_timeout_s=0.5)  # a busy machine takes a while to connect


def ids(commands: list[Command]) -> set[str]:
    return {properties.parse(command.ext["i"].encode())["UNIQ_KEY"] for command in commands}


@pytest.mark.parametrize("answer", [refuse(ResponseCode.SYSTEM_BUSY), silence], ids=["busy", "silent"])
async def test_a_group_that_fails_is_left_and_the_message_keeps_its_id(answer: object) -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster(groups=2) as cluster:
        for name in cluster.names:
            cluster.answers[name, SEND] = answer  # type: ignore[assignment]
        settings = ProducerSettings(timeout_s=HANG_S, attempt_timeout_s=0.2)
        async with Producer("p", nameserver=cluster.nameserver, settings=settings) as producer:
            sending = asyncio.ensure_future(producer.send(Message("T", b"x")))
            await until(lambda: cluster.asked("broker-a", SEND) and cluster.asked("broker-b", SEND))
            cluster.answers.clear()
            result = await sending
        sent = cluster.asked("broker-a", SEND) + cluster.asked("broker-b", SEND)
        assert len(sent) >= 3
        assert ids(sent) == {result.message_id}


@pytest.mark.parametrize("how", ["not the master", "sealed", "refused connection"])
async def test_who_does_not_take_messages_costs_a_new_route_and_the_next_group_gets_it_without_a_pause(
    how: str,
) -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster(groups=2) as cluster:
        settings = ProducerSettings(timeout_s=HANG_S)
        async with Producer("p", nameserver=cluster.nameserver, settings=settings) as producer:
            await producer.queues("T")
            codes = {"not the master": ResponseCode.SYSTEM_BUSY, "sealed": ResponseCode.SERVICE_NOT_AVAILABLE}
            if how in codes:
                cluster.answers["broker-a", SEND] = refuse(codes[how])
            else:
                await cluster.servers["broker-a"].close()
            results = [await producer.send(Message("T", b"x")) for _ in range(4)]
        assert {result.queue.broker_name for result in results} == {"broker-b"}
        sent = [c for name, c in cluster.received if c.code in (SEND, RequestCode.GET_ROUTEINFO_BY_TOPIC)]
        if how in codes:
            # The refused one, the question for the route, the same one again elsewhere.
            at = sent.index(cluster.asked("broker-a", SEND)[0])
            assert sent[at + 1].code == RequestCode.GET_ROUTEINFO_BY_TOPIC
            assert ids([sent[at]]) == ids([sent[at + 2]])
        assert len(cluster.asked(NAMESERVER, RequestCode.GET_ROUTEINFO_BY_TOPIC)) >= 2


async def test_a_refusal_for_good_is_raised_at_once() -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster:
        cluster.answers["broker-a", SEND] = refuse(ResponseCode.MESSAGE_ILLEGAL, "too large")
        async with Producer("p", nameserver=cluster.nameserver) as producer:
            with pytest.raises(RefusedError, match="too large"):
                await producer.send(Message("T", b"x"))
        assert len(cluster.asked("broker-a", SEND)) == 1


async def test_what_was_sent_and_never_answered_is_unknown_even_if_later_attempts_were_refused() -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster(groups=2) as cluster:
        cluster.answers["broker-a", SEND] = silence
        cluster.answers["broker-b", SEND] = refuse(ResponseCode.SYSTEM_BUSY)
        async with Producer("p", nameserver=cluster.nameserver, settings=QUICK) as producer:
            with pytest.raises(OutcomeUnknownError):
                await producer.send(Message("T", b"x"))


@pytest.mark.parametrize("code", [10, 11, 12])
async def test_stored_but_not_kept_for_sure_is_no_success(code: int) -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster:
        ext = {"msgId": "0A" * 16, "queueId": "0", "queueOffset": "7"}
        cluster.answers["broker-a", SEND] = lambda command: reply(command, code, ext=ext)
        async with Producer("p", nameserver=cluster.nameserver, settings=QUICK) as producer:
            with pytest.raises(OutcomeUnknownError, match="stored"):
                await producer.send(Message("T", b"x"))


async def test_refused_until_the_time_is_up_is_a_refusal() -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster:
        cluster.answers["broker-a", SEND] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
        async with Producer("p", nameserver=cluster.nameserver, settings=QUICK) as producer:
            with pytest.raises(RefusedError) as caught:
                await producer.send(Message("T", b"x"))
        assert caught.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert 1 < len(cluster.asked("broker-a", SEND)) < 40  # it paused in between


async def test_nobody_there_means_that_nothing_was_sent() -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster:
        await cluster.servers["broker-a"].close()
        async with Producer("p", nameserver=cluster.nameserver, settings=QUICK) as producer:
            with pytest.raises(UnreachableError):
                await producer.send(Message("T", b"x"))


async def test_the_next_name_server_answers_when_the_first_is_gone() -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster, ScriptedCluster() as gone:
        await gone.servers[NAMESERVER].close()
        nameservers = [gone.nameserver, cluster.nameserver]
        async with Producer("p", nameserver=nameservers) as producer:
            await producer.send(Message("T", b"x"))


async def test_a_route_serves_on_while_no_name_server_answers() -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster(groups=2) as cluster:
        async with Producer("p", nameserver=cluster.nameserver) as producer:
            await producer.send(Message("T", b"x"))
            await cluster.servers[NAMESERVER].close()
            cluster.answers["broker-a", SEND] = refuse(ResponseCode.SYSTEM_BUSY)
            results = [await producer.send(Message("T", b"y")) for _ in range(4)]
        assert {result.queue.broker_name for result in results} == {"broker-b"}


async def test_an_unknown_topic_gets_the_queues_that_its_creation_will_give_it() -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster(queues=8) as cluster:

        def template_only(command: Command) -> Command:
            if command.ext["topic"] != "TBW102":
                return reply(command, ResponseCode.TOPIC_NOT_EXIST, "none")
            return cluster._usual(command)

        cluster.answers[NAMESERVER, RequestCode.GET_ROUTEINFO_BY_TOPIC] = template_only
        async with Producer("p", nameserver=cluster.nameserver) as producer:
            assert [queue.queue_id for queue in await producer.queues("New")] == [0, 1, 2, 3]


async def test_a_broker_hears_who_is_there_before_the_first_message_and_that_it_leaves() -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster:
        async with Producer("p", nameserver=cluster.nameserver) as producer:
            await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(3)))
        codes = [command.code for name, command in cluster.received if name == "broker-a"]
        assert codes == [RequestCode.HEART_BEAT, SEND, SEND, SEND, RequestCode.UNREGISTER_CLIENT]
        said = heartbeat.read(cluster.asked("broker-a", RequestCode.HEART_BEAT)[0].body)
        assert said.producer_groups == ("p",)
        goodbye = cluster.asked("broker-a", RequestCode.UNREGISTER_CLIENT)[0]
        assert goodbye.ext == {"clientID": said.client_id, "producerGroup": "p"}


async def test_a_queue_that_was_named_is_the_one_that_is_used() -> None:
    async with asyncio.timeout(HANG_S):
        async with ScriptedCluster(groups=2) as cluster, Producer("p", nameserver=cluster.nameserver) as producer:
            queue = MessageQueue("T", "broker-b", 1)
            for _ in range(3):
                assert (await producer.send(Message("T", b"x"), queue=queue)).queue == queue


async def test_a_oneway_message_asks_for_no_answer() -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster:
        async with Producer("p", nameserver=cluster.nameserver) as producer:
            await producer.send_oneway(Message("T", b"x"))
            await until(lambda: cluster.asked("broker-a", SEND))
        assert cluster.asked("broker-a", SEND)[0].is_oneway


def test_a_group_name_that_is_none_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="group name"):
        Producer("no blanks", nameserver="127.0.0.1:9876")
    with pytest.raises(ConfigError, match="nameserver"):
        Producer("p", nameserver="")
