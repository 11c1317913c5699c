"""The blocking simple consumer, from a thread of its own against scripted brokers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from gantry.client.blockingpop import BlockingSimpleConsumer
from gantry.errors import ClosedError, RefusedError
from gantry.leaves.frames import Command, encode
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.leasing import ACK, ACKS, NEWS, POP, LeasingCluster, by_broker
from testkit.patience import HANG_S
from testkit.scripted import refuse


def beside(cluster: LeasingCluster, calls: Callable[[BlockingSimpleConsumer], None], **more: object) -> None:
    """Run the cluster in a loop and the calls of a consumer beside it."""

    def work() -> None:
        given = {"subscription": {"T": "*"}, **more}
        with BlockingSimpleConsumer("g", nameserver=cluster.nameserver, **given) as consumer:  # type: ignore[arg-type]
            calls(consumer)

    async def story() -> None:
        async with cluster:
            await asyncio.wait_for(asyncio.to_thread(work), HANG_S)

    asyncio.run(story())


def test_messages_are_received_changed_acknowledged_and_buried() -> None:
    cluster = LeasingCluster({"T": 4})

    def calls(consumer: BlockingSimpleConsumer) -> None:
        messages = consumer.receive(invisible_s=20.0)
        assert [one.body for one in messages] == [b"broker-a/%d" % number for number in range(4)]
        consumer.change_invisible(messages[0], 60)
        consumer.ack(messages[0])
        consumer.ack(messages[1:3])
        consumer.give_up(messages[3])
        assert consumer.receive(wait_s=0.0) == []

    beside(cluster, calls)
    assert (cluster.acked(), cluster.topics["broker-a", "T"].dead, cluster.changes()) == ([0, 1, 2], [3], [60_000])
    assert cluster.asked("broker-a", RequestCode.UNREGISTER_CLIENT)


def test_all_brokers_get_their_turn_and_one_that_refuses_keeps_nobody() -> None:
    cluster = LeasingCluster({"T": 4}, groups=3)
    cluster.answers["broker-a", POP] = refuse(ResponseCode.SYSTEM_ERROR)
    received: list[bytes] = []
    beside(cluster, lambda consumer: [received.extend(m.body for m in consumer.receive(1)) for _ in range(4)] and None)
    assert (len(received), by_broker(received).keys() <= {"broker-b", "broker-c"}) == (4, True)


def test_a_thread_settles_while_another_waits_for_messages() -> None:
    cluster = LeasingCluster({"T": 1})

    def calls(consumer: BlockingSimpleConsumer) -> None:
        (message,) = consumer.receive()
        held: list[tuple[asyncio.AbstractEventLoop, Command]] = []
        waits, received = threading.Event(), list[bytes]()

        def news(command: Command) -> None:
            held.append((asyncio.get_running_loop(), command))
            waits.set()

        def answer(command: Command) -> None:
            for connection in cluster.connections("broker-a"):
                connection.write(encode(reply(command, ext={"hasMsg": "true", "pollingFull": "false"})))

        cluster.answers["broker-a", NEWS] = news
        waiting = threading.Thread(target=lambda: received.extend(m.body for m in consumer.receive(wait_s=HANG_S)))
        waiting.start()
        assert waits.wait(HANG_S)
        consumer.ack(message)
        assert (cluster.acked(), received) == ([0], [])
        cluster.topics["broker-a", "T"].count = 2
        loop, command = held[0]
        loop.call_soon_threadsafe(answer, command)
        waiting.join(HANG_S)
        assert received == [b"broker-a/1"]

    beside(cluster, calls)


def test_an_ack_is_repeated_until_the_broker_takes_it_and_a_final_refusal_is_raised() -> None:
    cluster = LeasingCluster({"T": 2})

    def calls(consumer: BlockingSimpleConsumer) -> None:
        first, second = consumer.receive()
        usual, busy = cluster.answers["broker-a", ACK], refuse(ResponseCode.SYSTEM_BUSY)

        def sometimes(command: Command) -> Command | None:
            return (usual if len(cluster.asked("broker-a", ACK)) > 2 else busy)(command)

        cluster.answers["broker-a", ACK] = sometimes
        consumer.ack(first)
        cluster.answers["broker-a", ACK] = refuse(ResponseCode.MESSAGE_ILLEGAL, "not here")
        with pytest.raises(RefusedError, match="not here"):
            consumer.ack(second)

    beside(cluster, calls)
    assert cluster.acked() == [0] and not cluster.asked("broker-a", ACKS)


def test_after_close_every_call_says_so() -> None:
    cluster = LeasingCluster({"T": 1})

    def calls(consumer: BlockingSimpleConsumer) -> None:
        (message,) = consumer.receive()
        consumer.close()
        for call in (consumer.receive, lambda: consumer.ack(message)):
            with pytest.raises(ClosedError, match="closed"):
                call()

    beside(cluster, calls)
