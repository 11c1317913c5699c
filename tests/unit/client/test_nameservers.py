"""What clients make of several name servers that do not know the same."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from gantry.client.blocking import BlockingProducer
from gantry.client.outgoing import Message
from gantry.client.producer import Producer, ProducerSettings
from gantry.errors import RefusedError
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.scripted import NAMESERVER, ScriptedCluster, refuse

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
NO_ROUTE = refuse(ResponseCode.TOPIC_NOT_EXIST)
SETTINGS = ProducerSettings(timeout_s=60.0)
WITHIN_S = 60.0


def play(coroutine: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, WITHIN_S))


@pytest.mark.parametrize("is_blocking", [False, True], ids=["asyncio", "blocking"])
def test_an_empty_name_server_does_not_hide_the_route_that_another_one_has(is_blocking: bool) -> None:
    async def story() -> None:
        async with ScriptedCluster() as empty, ScriptedCluster() as full:
            empty.answers[NAMESERVER, ROUTE] = NO_ROUTE
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

    play(story())


def test_a_working_route_is_kept_until_no_name_server_has_it() -> None:
    async def story() -> None:
        async with ScriptedCluster() as empty, ScriptedCluster() as full:
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

    play(story())
