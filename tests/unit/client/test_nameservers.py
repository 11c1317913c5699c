"""What clients make of several name servers that do not know the same."""

from __future__ import annotations

import asyncio

import pytest

from gantry.client.blocking import BlockingProducer
from gantry.client.connections import blockingsession, routes
from gantry.client.connections.session import Session
from gantry.client.outgoing import Message
from gantry.client.producer import Producer, ProducerSettings
from gantry.client.transaction import Outcome, StoredMessage, TransactionProducer
from gantry.errors import RefusedError
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.scripted import NAMESERVER, Answer, ScriptedCluster, body, refuse, silence
from testkit.turning import until

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
NO_ROUTE = refuse(ResponseCode.TOPIC_NOT_EXIST)
SETTINGS = ProducerSettings(timeout_s=60.0)
WITHIN_S = 60.0


@pytest.mark.parametrize("is_blocking", [False, True], ids=["asyncio", "blocking"])
@pytest.mark.parametrize(
    "first",
    [NO_ROUTE, refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), lambda command: reply(command, body=b"no JSON")],
    ids=["empty", "no-name-server", "unreadable"],
)
async def test_an_empty_name_server_does_not_hide_the_route_that_another_one_has(
    first: Answer, is_blocking: bool
) -> None:
    async with asyncio.timeout(WITHIN_S), ScriptedCluster() as empty, ScriptedCluster() as full:
        empty.answers[NAMESERVER, ROUTE] = first
        names = [empty.nameserver, full.nameserver]
        if is_blocking:

            def send() -> str:
                with BlockingProducer("p", nameserver=names) as producer:
                    return producer.send(Message("T", b"x")).queue.broker_name

            assert await asyncio.to_thread(send) == "broker-a"
        else:
            async with Producer("p", nameserver=names, settings=SETTINGS) as producer:
                assert (await producer.send(Message("T", b"x"))).queue.broker_name == "broker-a"
        assert len(full.asked("broker-a", RequestCode.SEND_MESSAGE_V2)) == 1


async def test_a_working_route_is_kept_until_no_name_server_has_it() -> None:
    async with asyncio.timeout(WITHIN_S), ScriptedCluster() as empty, ScriptedCluster() as full:
        empty.answers[NAMESERVER, ROUTE] = NO_ROUTE
        names = [empty.nameserver, full.nameserver]
        async with Producer("p", nameserver=names, settings=SETTINGS) as producer:
            await producer.send(Message("T", b"x"))
            await full.servers[NAMESERVER].close()
            producer._routes.doubt("T")
            await producer.send(Message("T", b"x"))
            assert len(full.asked("broker-a", RequestCode.SEND_MESSAGE_V2)) == 2
            full.answers[NAMESERVER, ROUTE] = NO_ROUTE
            await full.listen(NAMESERVER)
            with pytest.raises(RefusedError) as refused:
                while True:  # until the address that failed is asked again
                    producer._routes.doubt("T")
                    await producer.queues("T")
            assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("is_blocking", [False, True], ids=["asyncio", "blocking"])
@pytest.mark.parametrize("is_gone", [False, True], ids=["silent", "gone"])
async def test_a_route_that_fails_is_asked_for_once_and_serves_on_while_no_name_server_answers(
    is_blocking: bool, is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session.look_up, "__defaults__", (0.05,))
    monkeypatch.setattr(blockingsession, "TIMEOUT_S", 0.05)
    async with asyncio.timeout(WITHIN_S), ScriptedCluster() as cluster:

        async def silenced() -> None:
            if is_gone:
                await cluster.servers[NAMESERVER].close()
            cluster.answers[NAMESERVER, ROUTE] = silence
            cluster.received.clear()

        if is_blocking:
            loop = asyncio.get_running_loop()

            def sends() -> None:
                with BlockingProducer("p", nameserver=cluster.nameserver, settings=SETTINGS) as producer:
                    producer.send(Message("T", b"x"))
                    asyncio.run_coroutine_threadsafe(silenced(), loop).result()
                    producer._session.doubt("T")
                    for _ in range(3):
                        producer.send(Message("T", b"x"), timeout_s=WITHIN_S)

            await asyncio.to_thread(sends)
        else:
            async with Producer("p", nameserver=cluster.nameserver, settings=SETTINGS) as producer:
                await producer.send(Message("T", b"x"))
                await silenced()
                producer._routes.doubt("T")
                for _ in range(3):
                    await producer.send(Message("T", b"x"))
        assert len(cluster.asked("broker-a", RequestCode.SEND_MESSAGE_V2)) == 3
        assert len(cluster.asked(NAMESERVER, ROUTE)) <= 1


async def test_brokers_that_the_first_name_server_does_not_know_can_ask_about_transactions() -> None:
    async def checker(_: StoredMessage) -> Outcome:
        return Outcome.UNKNOWN

    async with asyncio.timeout(WITHIN_S), ScriptedCluster() as empty, ScriptedCluster() as full:
        nobody = body({"brokerAddrTable": {}, "clusterAddrTable": {}})
        empty.answers[NAMESERVER, RequestCode.GET_BROKER_CLUSTER_INFO] = nobody
        async with TransactionProducer("p", checker, nameserver=[empty.nameserver, full.nameserver]):
            await until(lambda: full.asked("broker-a", RequestCode.HEART_BEAT))


async def test_a_route_that_cannot_be_read_does_not_end_the_asking_for_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "REFRESH_S", 0.01)
    async with asyncio.timeout(WITHIN_S):
        async with ScriptedCluster() as cluster, Producer("p", nameserver=cluster.nameserver) as producer:
            await producer.send(Message("T", b"x"))
            cluster.answers[NAMESERVER, ROUTE] = lambda command: reply(command, body=b"no JSON")
            before = len(cluster.asked(NAMESERVER, ROUTE))
            await until(lambda: len(cluster.asked(NAMESERVER, ROUTE)) >= before + 3)
