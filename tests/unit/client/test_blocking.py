"""The synchronous client, from a thread of its own against a scripted cluster."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from gantry.client.blocking import BlockingProducer, BlockingPuller, Message, ReadFrom
from gantry.client.connections import blockingsession
from gantry.client.connections.blockingsession import is_readable
from gantry.client.hooks import Sending
from gantry.client.settings import ProducerSettings
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from gantry.leaves import properties
from gantry.model.route import MessageQueue
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.onequeue import COMMIT, MASTER, PULL, SLAVE, Group
from testkit.patience import HANG_S
from testkit.scripted import NAMESERVER, ScriptedCluster, offset, refuse, silence

SEND = RequestCode.SEND_MESSAGE_V2
QUICK = ProducerSettings(timeout_s=1.5, attempt_timeout_s=0.5)  # a busy machine takes a while to connect


def beside(cluster: ScriptedCluster, calls: Callable[[], None]) -> None:
    """Run the cluster in a loop and the synchronous calls beside it."""

    async def story() -> None:
        async with cluster:
            await asyncio.wait_for(asyncio.to_thread(calls), HANG_S)

    asyncio.run(story())


def test_a_producer_says_who_it_is_sends_and_says_goodbye() -> None:
    cluster = ScriptedCluster()

    def calls() -> None:
        with BlockingProducer("p", nameserver=cluster.nameserver) as producer:
            result = producer.send(Message("T", b"x", tags="a"), key="k")
            assert result.queue_offset == 7
            assert len(producer.send_batch([Message("T", b"1"), Message("T", b"2")]).message_ids) == 2

    beside(cluster, calls)
    codes = [command.code for name, command in cluster.received if name == "broker-a"]
    assert codes == [
        RequestCode.HEART_BEAT,
        SEND,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.UNREGISTER_CLIENT,
    ]
    assert properties.parse(cluster.asked("broker-a", SEND)[0].ext["i"].encode())["TAGS"] == "a"


def test_hooks_are_around_every_send_and_may_replace_its_messages() -> None:
    cluster, ended = ScriptedCluster(), []

    class Noting:
        @contextmanager
        def sending(self, sending: Sending) -> Iterator[None]:
            sending.messages = [replace(message, properties={"trace": "42"}) for message in sending.messages]
            try:
                yield
            finally:
                ended.append((len(sending.messages), sending.result and sending.result.queue_offset))

    def calls() -> None:
        settings = replace(QUICK, timeout_s=10.0, attempt_timeout_s=5.0, hooks=(Noting(),))
        with BlockingProducer("p", nameserver=cluster.nameserver, settings=settings) as producer:
            producer.send(Message("T", b"x"))
            producer.send_batch([Message("T", b"1"), Message("T", b"2")])
            cluster.answers["broker-a", SEND] = refuse(ResponseCode.MESSAGE_ILLEGAL)
            with pytest.raises(RefusedError):
                producer.send(Message("T", b"x"))

    beside(cluster, calls)
    assert ended == [(1, 7), (2, 7), (1, None)]
    assert properties.parse(cluster.asked("broker-a", SEND)[0].ext["i"].encode())["trace"] == "42"


def test_a_group_that_refuses_is_left_and_the_message_keeps_its_id() -> None:
    cluster = ScriptedCluster(groups=2)
    cluster.answers["broker-a", SEND] = refuse(ResponseCode.SYSTEM_BUSY)

    def calls() -> None:
        with BlockingProducer("p", nameserver=cluster.nameserver) as producer:
            assert {producer.send(Message("T", b"x")).queue.broker_name for _ in range(4)} == {"broker-b"}

    beside(cluster, calls)


def test_errors_are_those_of_the_asyncio_producer() -> None:
    cluster = ScriptedCluster()

    def calls() -> None:
        with BlockingProducer("p", nameserver=cluster.nameserver, settings=QUICK) as producer:
            cluster.answers["broker-a", SEND] = refuse(ResponseCode.MESSAGE_ILLEGAL)
            with pytest.raises(RefusedError):
                producer.send(Message("T", b"x"))
            cluster.answers["broker-a", SEND] = silence
            with pytest.raises(OutcomeUnknownError):
                producer.send(Message("T", b"x"))
        with (
            BlockingProducer("p", nameserver="127.0.0.1:1", settings=QUICK) as lost,
            pytest.raises(UnreachableError, match="no name server"),
        ):
            lost.send(Message("T", b"x"))

    beside(cluster, calls)


@pytest.mark.parametrize("name", [NAMESERVER, "broker-a"])
def test_the_time_of_a_send_is_a_bound_for_the_look_up_of_its_route_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blockingsession, "TIMEOUT_S", 3600.0)  # what it would take without the bound
    cluster = ScriptedCluster()
    cluster.answers[name, RequestCode.GET_ROUTEINFO_BY_TOPIC] = silence
    cluster.answers[name, SEND] = silence
    settings = replace(QUICK, attempt_timeout_s=3600.0)

    def calls() -> None:
        with BlockingProducer("p", nameserver=cluster.nameserver, settings=settings) as producer:
            with pytest.raises((UnreachableError, OutcomeUnknownError)):  # a busy machine may need the time to connect
                producer.send(Message("T", b"x"), timeout_s=0.5)
            with pytest.raises(UnreachableError):  # and not an unknown outcome: there was no time to send it
                producer.send(Message("T", b"late"), timeout_s=0.0)

    beside(cluster, calls)
    assert b"late" not in [command.body for command in cluster.asked("broker-a", SEND)]


async def test_a_silent_name_server_does_not_use_the_time_of_the_next_one() -> None:
    silent, cluster = ScriptedCluster(), ScriptedCluster()
    silent.answers[NAMESERVER, RequestCode.GET_ROUTEINFO_BY_TOPIC] = silence

    def calls() -> None:
        addresses = [silent.nameserver, cluster.nameserver]
        with BlockingProducer("p", nameserver=addresses, settings=replace(QUICK, timeout_s=4.0)) as producer:
            producer.send(Message("T", b"x"))

    async with silent, cluster:
        await asyncio.wait_for(asyncio.to_thread(calls), HANG_S)


async def test_a_connection_that_was_closed_while_idle_is_noticed_before_it_is_used() -> None:
    cluster = ScriptedCluster()
    loop: asyncio.AbstractEventLoop

    async def hang_up() -> None:
        for name in ("broker-a", NAMESERVER):
            for connection in cluster.connections(name):
                connection.close("idle")
                while connection in cluster.servers[name].connections:  # noqa: ASYNC110
                    await asyncio.sleep(0)

    def calls() -> None:
        with BlockingProducer("p", nameserver=cluster.nameserver, settings=QUICK) as producer:
            producer.send(Message("T", b"x"))
            asyncio.run_coroutine_threadsafe(hang_up(), loop).result(HANG_S)
            producer.send(Message("T", b"y"))

    loop = asyncio.get_running_loop()
    async with cluster:
        await asyncio.wait_for(asyncio.to_thread(calls), HANG_S)
    assert len(cluster.asked("broker-a", SEND)) == 2
    assert len(cluster.asked("broker-a", RequestCode.HEART_BEAT)) == 2


def test_a_puller_asks_for_offsets() -> None:
    cluster = ScriptedCluster()
    cluster.answers["broker-a", RequestCode.GET_MIN_OFFSET] = offset(-1)
    cluster.answers["broker-a", RequestCode.GET_MAX_OFFSET] = offset(9)
    cluster.answers["broker-a", RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = offset(4)
    cluster.answers["broker-a", RequestCode.QUERY_CONSUMER_OFFSET] = refuse(ResponseCode.QUERY_NOT_FOUND)

    def calls() -> None:
        with BlockingPuller("g", nameserver=cluster.nameserver) as puller:
            queue = MessageQueue("T", "broker-a", 0)
            assert queue in puller.queues("T")
            assert (puller.min_offset(queue), puller.max_offset(queue), puller.offset_at(queue, 5)) == (0, 9, 4)
            assert puller.committed(queue) is None
            puller.commit(queue, 3)

    beside(cluster, calls)
    assert cluster.asked("broker-a", RequestCode.UPDATE_CONSUMER_OFFSET)[0].ext["commitOffset"] == "3"


@pytest.mark.parametrize(
    ("module", "missing"),
    [
        ("gantry.client.blocking", ("asyncio", "ssl")),
        ("gantry.client.producer", ("aiohttp", "uvloop", "orjson", "yaml")),
    ],
)
def test_importing_loads_no_more_than_is_needed(module: str, missing: tuple[str, ...]) -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}; import {module}; print(len(sys.modules), *sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    count, *found = done.stdout.split()
    assert not set(missing) & set(found)
    assert int(count) < 300  # Python starts with 50; asyncio is 130 of the rest


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "not known yet"])
async def test_a_puller_reads_from_a_slave_while_the_master_is_away_and_then_from_the_master(
    monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    monkeypatch.setattr("gantry.client.blocking._LOOK_S", 0.05)
    async with asyncio.timeout(HANG_S), Group(30) as group:
        queue = MessageQueue("T", MASTER, 0)
        with BlockingPuller("g", nameserver=group.nameserver) as puller:
            assert (await asyncio.to_thread(puller.pull, queue, 0)).next_offset == 10
            await group.lose_master(is_known)
            assert (await asyncio.to_thread(puller.pull, queue, 10)).next_offset == 20
            assert await asyncio.to_thread(puller.max_offset, queue) == 30
            await asyncio.to_thread(puller.commit, queue, 20)
            assert len(group.asked(SLAVE, COMMIT)) == 1 and not group.asked(MASTER, COMMIT)
            await group.bring_master()
            while not group.asked(MASTER, RequestCode.GET_MAX_OFFSET):
                assert await asyncio.to_thread(puller.max_offset, queue) == 30
            assert (await asyncio.to_thread(puller.pull, queue, 20)).next_offset == 30
        assert group.offsets_pulled(MASTER) == [0, 20] and group.offsets_pulled(SLAVE) == [10]


async def test_a_puller_goes_where_the_answer_says_and_back() -> None:
    async with asyncio.timeout(HANG_S), Group(30) as group:
        queue = MessageQueue("T", MASTER, 0)
        group.answers[MASTER, PULL] = group.suggesting(1)
        with BlockingPuller("g", nameserver=group.nameserver) as puller:
            for start in (0, 10, 20):
                assert (await asyncio.to_thread(puller.pull, queue, start)).next_offset == start + 10
        assert group.offsets_pulled(MASTER) == [0, 20] and group.offsets_pulled(SLAVE) == [10]


async def test_a_puller_may_ask_masters_only_or_slaves_first() -> None:
    async with asyncio.timeout(HANG_S), Group(30) as group:
        queue = MessageQueue("T", MASTER, 0)
        group.answers[MASTER, PULL] = group.suggesting(1)
        with BlockingPuller("g", nameserver=group.nameserver, read_from=ReadFrom.MASTER) as masters:
            assert (await asyncio.to_thread(masters.pull, queue, 0)).next_offset == 10
            assert (await asyncio.to_thread(masters.pull, queue, 10)).next_offset == 20
            assert not group.asked(SLAVE, PULL)
            await group.lose_master(True)
            with pytest.raises(UnreachableError):
                await asyncio.to_thread(masters.max_offset, queue)
        with BlockingPuller("g", nameserver=group.nameserver, read_from=ReadFrom.SLAVE) as slaves:
            await group.bring_master()
            assert (await asyncio.to_thread(slaves.pull, queue, 20)).next_offset == 30
        assert group.offsets_pulled(MASTER) == [0, 10] and group.offsets_pulled(SLAVE) == [20]


async def test_what_a_master_refuses_is_asked_of_no_slave() -> None:
    async with asyncio.timeout(HANG_S), Group(30) as group:
        group.answers[MASTER, PULL] = refuse(ResponseCode.NO_PERMISSION)
        with BlockingPuller("g", nameserver=group.nameserver) as puller, pytest.raises(RefusedError):
            await asyncio.to_thread(puller.pull, MessageQueue("T", MASTER, 0), 0)
        assert not group.asked(SLAVE, PULL)


def test_a_process_with_thousands_of_open_files_sees_what_can_be_read() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        ours, theirs = socket.socketpair()
        stack.enter_context(ours)
        stack.enter_context(theirs)
        high = socket.socket(fileno=os.dup2(ours.fileno(), 2000))
        stack.enter_context(high)
        assert not is_readable(high, 0.0)
        theirs.send(b"x")
        assert is_readable(high, 10.0)
