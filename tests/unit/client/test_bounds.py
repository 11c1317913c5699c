"""What a producer may take: time for the whole call, output for each connection; and what a late one is told."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import replace

import pytest

from gantry.client.connections import session
from gantry.client.producer import Message, Producer, ProducerSettings
from gantry.errors import ClosedError, OutcomeUnknownError, UnreachableError
from gantry.transport.client import RemotingClient
from gantry.transport.connection import Connection
from gantry.wire.codes import RequestCode
from testkit.patience import HANG_S
from testkit.scripted import NAMESERVER, ScriptedCluster, silence
from testkit.turning import until

SEND = RequestCode.SEND_MESSAGE_V2
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
FOREVER_S = 3600.0
PATIENT = ProducerSettings(timeout_s=FOREVER_S, attempt_timeout_s=FOREVER_S, compress_over_bytes=None)


async def test_a_send_that_gets_no_place_in_time_was_not_sent() -> None:
    settings = replace(PATIENT, in_flight_max=1)
    async with (
        asyncio.timeout(HANG_S),
        ScriptedCluster() as cluster,
        Producer("p", nameserver=cluster.nameserver, settings=settings) as producer,
    ):
        cluster.answers["broker-a", SEND] = silence
        first = asyncio.ensure_future(producer.send(Message("T", b"first")))
        await until(lambda: cluster.asked("broker-a", SEND))
        with pytest.raises(UnreachableError, match="not sent"):
            await producer.send(Message("T", b"late"), timeout_s=0.05)
        assert [command.body for command in cluster.asked("broker-a", SEND)] == [b"first"]
        first.cancel()


async def test_the_time_of_a_send_is_a_bound_for_the_look_up_of_its_route_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "NAMESERVER_TIMEOUT_S", FOREVER_S)
    async with (
        asyncio.timeout(HANG_S),
        ScriptedCluster() as cluster,
        Producer("p", nameserver=cluster.nameserver, settings=PATIENT) as producer,
    ):
        cluster.answers[NAMESERVER, RequestCode.GET_ROUTEINFO_BY_TOPIC] = silence
        for call in (producer.send, producer.request):
            with pytest.raises(UnreachableError):
                await call(Message("T", b"x"), timeout_s=0.05)
        assert not cluster.asked("broker-a", SEND)


@pytest.mark.parametrize("when", ["before", "at its route", "at its connection", "at its answer"])
async def test_a_send_ends_when_its_producer_is_stopped(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = RemotingClient._connect
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster:
        connecting: list[str] = []

        async def connects(self: RemotingClient, address: str) -> Connection:
            if when == "at its connection" and address != cluster.nameserver:
                connecting.append(address)
                await asyncio.Event().wait()
            return await connect(self, address)

        monkeypatch.setattr(RemotingClient, "_connect", connects)
        cluster.answers["broker-a", SEND] = silence
        if when == "at its route":
            cluster.answers[NAMESERVER, ROUTE] = silence
        arrived = {
            "before": lambda: True,
            "at its route": lambda: cluster.asked(NAMESERVER, ROUTE),
            "at its connection": lambda: connecting,
            "at its answer": lambda: cluster.asked("broker-a", SEND),
        }
        producer = Producer("p", nameserver=cluster.nameserver, settings=PATIENT)
        await producer.start()
        if when == "before":
            await producer.stop()
        sending = asyncio.ensure_future(producer.send(Message("T", b"x")))
        await until(arrived[when])
        await producer.stop()
        with pytest.raises(OutcomeUnknownError if when == "at its answer" else ClosedError):
            await sending


async def test_a_broker_that_reads_nothing_holds_back_one_way_messages_and_sends_and_loses_none_in_silence() -> None:
    """Bodies of 256 KiB fill what the system keeps for a socket, and then the client's own mark, quickly."""
    body = os.urandom(256 << 10)
    settings = replace(PATIENT, timeout_s=0.5)
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster:
        producer = Producer("p", nameserver=cluster.nameserver, settings=settings)
        await producer.start()
        await producer.send(Message("T", b"first"))
        (hanging,) = cluster.connections("broker-a")
        hanging.pause_reading("the test")
        handed = 0
        with pytest.raises(UnreachableError, match="does not read"):
            while handed < 1000:
                await producer.send_oneway(Message("T", body))
                handed += 1
        with pytest.raises(UnreachableError):  # not sent, instead of an unknown outcome
            await producer.send(Message("T", body))
        assert not hanging.closed, "what is under way on the connection is not cut off"
        hanging.resume_reading("the test")
        await until(lambda: len(cluster.asked("broker-a", SEND)) == handed + 1)
        await producer.send(Message("T", b"last"), timeout_s=60.0)
        await producer.stop()
        assert producer.oneways_in_doubt == 0, "the last answer shows that all were read"


async def test_one_way_messages_of_a_connection_that_is_lost_are_counted() -> None:
    async with (
        asyncio.timeout(HANG_S),
        ScriptedCluster() as cluster,
        Producer("p", nameserver=cluster.nameserver, settings=PATIENT) as producer,
    ):
        for number in range(3):
            await producer.send_oneway(Message("T", b"%d" % number))
        await producer.send(Message("T", b"answered"))
        for number in range(2):
            await producer.send_oneway(Message("T", b"%d" % number))
        (connection,) = cluster.connections("broker-a")
        connection.abort("the test")
        await until(lambda: producer.oneways_in_doubt == 2)


async def test_many_one_way_messages_leave_turns_to_others() -> None:
    turns = 0

    async def counting() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with (
        asyncio.timeout(HANG_S),
        ScriptedCluster() as cluster,
        Producer("p", nameserver=cluster.nameserver, settings=PATIENT) as producer,
    ):
        await producer.send(Message("T", b"first"))
        other = asyncio.ensure_future(counting())
        for _ in range(320):
            await producer.send_oneway(Message("T", b"x"))
        assert turns >= 19
        other.cancel()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
async def test_a_forked_child_writes_nothing_on_its_parents_connections() -> None:
    async with (
        asyncio.timeout(HANG_S),
        ScriptedCluster() as cluster,
        Producer("p", nameserver=cluster.nameserver, settings=PATIENT) as producer,
    ):
        await producer.send(Message("T", b"first"))
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                for call in (producer.send, producer.send_oneway):
                    with pytest.raises(ClosedError, match="forked"):
                        asyncio.run(call(Message("T", b"child")))
                os._exit(0)
            os._exit(1)
        assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
        await producer.send(Message("T", b"parent"))
        assert [command.body for command in cluster.asked("broker-a", SEND)] == [b"first", b"parent"]
        assert len(cluster.connections("broker-a")) == 1
