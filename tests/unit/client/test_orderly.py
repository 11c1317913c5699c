"""What an orderly consumer asks of a broker, and what it does with every answer and with none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

from gantry.client.orderly import OrderlyConsumer, OrderSettings, ReceivedMessage
from gantry.leaves.frames import Command, encode
from gantry.wire.bodies import dumps
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.onequeue import FIRST, OneQueue
from testkit.patience import HANG_S
from testkit.scripted import refuse, silence
from testkit.turning import until

LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
ORDER = OrderSettings(suspend_s=0.01, renew_every_s=0.05, retry_every_s=0.02)


class Locking(OneQueue):
    """One queue with a lock that is ours, unless it `is_taken`."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.is_taken = False
        self.answers["broker-a", LOCK] = self._lock

    def locks(self, code: int = LOCK) -> list[dict[str, object]]:
        return [json.loads(command.body) for command in self.asked("broker-a", code)]

    def order(self, *codes: int) -> list[int]:
        return [command.code for _, command in self.received if command.code in codes]

    def _lock(self, command: Command) -> Command:
        asked = json.loads(command.body)["mqSet"]
        return reply(command, body=dumps({"lockOKMQSet": [] if self.is_taken else asked}))


def member(
    cluster: OneQueue, listener: Callable[[ReceivedMessage], Awaitable[None]], order: OrderSettings = ORDER
) -> OrderlyConsumer:
    return OrderlyConsumer(
        "g", nameserver=cluster.nameserver, subscription={"T": "*"}, listener=listener, settings=FIRST, order=order
    )


class Listener:
    def __init__(self, fails: int = 0, hangs: bool = False) -> None:
        self.bodies: list[bytes] = []
        self.cancelled = 0
        self.entered = asyncio.Event()
        self._fails = fails
        self._hangs = hangs

    async def __call__(self, message: ReceivedMessage) -> None:
        self.entered.set()
        self.bodies.append(message.body)
        if self._hangs:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if message.attempt <= self._fails:
            raise RuntimeError("not yet")


async def test_a_queue_is_locked_before_its_start_is_asked_for_and_committed_before_it_is_given_back() -> None:
    async with asyncio.timeout(HANG_S), Locking(count=10) as cluster:
        at_last, go_on = asyncio.Event(), asyncio.Event()

        async def listener(message: ReceivedMessage) -> None:
            if message.body == b"9":
                at_last.set()
                await go_on.wait()

        consumer = member(cluster, listener)
        await consumer.start()
        await at_last.wait()
        assert consumer.queues
        stopping = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0)
        go_on.set()
        await stopping
        (body, *_) = cluster.locks()
        assert (body["consumerGroup"], body["clientId"]) == ("g", consumer.client_id)
        assert body["mqSet"] == [{"brokerName": "broker-a", "queueId": 0, "topic": "T"}]
        start, commit = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET
        order = cluster.order(LOCK, start, commit, UNLOCK, RequestCode.UNREGISTER_CLIENT)
        assert order[:2] == [LOCK, start]
        assert [code for code in order if code != LOCK][-3:] == [commit, UNLOCK, RequestCode.UNREGISTER_CLIENT]
        assert cluster.committed()[-1] == 10


async def test_nothing_is_pulled_while_another_member_has_the_lock() -> None:
    async with asyncio.timeout(HANG_S), Locking(count=10) as cluster:
        cluster.is_taken = True
        listener = Listener()
        async with member(cluster, listener) as consumer:
            await until(lambda: len(cluster.locks()) > 2)
            assert (consumer.queues, cluster.pulls(), listener.bodies) == ([], [], [])
            cluster.is_taken = False
            await until(lambda: len(listener.bodies) == 10)


async def test_a_lock_that_was_lost_ends_the_work_and_commits_nothing() -> None:
    async with asyncio.timeout(HANG_S), Locking(count=10) as cluster:
        listener = Listener(hangs=True)
        async with member(cluster, listener) as consumer:
            await listener.entered.wait()
            cluster.is_taken = True
            await until(lambda: listener.cancelled)
            assert consumer.queues == []
        assert cluster.committed() == []


async def test_a_lock_that_cannot_be_renewed_ends_by_our_own_clock() -> None:
    async with asyncio.timeout(HANG_S), Locking(count=10) as cluster:
        listener = Listener(hangs=True)
        order = OrderSettings(lock_valid_s=0.5, renew_every_s=0.05, retry_every_s=0.02)
        async with member(cluster, listener, order) as consumer:
            await listener.entered.wait()
            cluster.answers["broker-a", LOCK] = silence
            await until(lambda: listener.cancelled)
            assert consumer.queues == []


async def test_a_lock_whose_answer_comes_too_late_is_none() -> None:
    async with asyncio.timeout(HANG_S), Locking(count=10) as cluster:
        loop, late = asyncio.get_running_loop(), 0

        def answer(command: Command) -> Command | None:
            nonlocal late
            late += 1
            (connection,) = cluster.connections("broker-a")
            loop.call_later(0.6, connection.write, encode(cluster._lock(command)))
            return None

        cluster.answers["broker-a", LOCK] = answer
        listener = Listener()
        async with member(cluster, listener, OrderSettings(lock_valid_s=0.5, retry_every_s=0.02)):
            await until(lambda: late == 3)
            assert (cluster.pulls(), listener.bodies) == ([], [])


async def test_a_broker_that_refuses_to_lock_takes_no_queue_away() -> None:
    async with asyncio.timeout(HANG_S), Locking(count=1) as cluster:
        listener = Listener(hangs=True)
        async with member(cluster, listener, OrderSettings(renew_every_s=0.02)) as consumer:
            await listener.entered.wait()
            cluster.answers["broker-a", LOCK] = refuse(ResponseCode.SYSTEM_BUSY)
            asked = len(cluster.locks())
            await until(lambda: len(cluster.locks()) > asked + 1)
            assert consumer.queues
            assert not listener.cancelled
            # Nobody waits for a listener that does not end.
            await asyncio.wait_for(_stopped_soon(consumer), HANG_S)


async def _stopped_soon(consumer: OrderlyConsumer) -> None:
    for one, _ in consumer._queues.values():
        one.lease.refused()
    await until(lambda: not consumer.queues)


async def test_a_message_that_fails_comes_again_before_what_stands_behind_it() -> None:
    async with asyncio.timeout(HANG_S), Locking(count=3) as cluster:
        listener = Listener(fails=2)
        async with member(cluster, listener):
            await until(lambda: len(listener.bodies) == 9)
        assert listener.bodies == [b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3


async def test_progress_is_committed_while_the_consumer_runs() -> None:
    async with asyncio.timeout(HANG_S), Locking(count=10) as cluster:
        listener = Listener()
        async with member(cluster, listener) as consumer:
            await until(lambda: len(listener.bodies) == 10)
            await until(lambda: 10 in cluster.told())
            await consumer.commit()


async def test_a_message_that_was_given_up_is_a_dead_letter_and_its_queue_goes_on() -> None:
    async with asyncio.timeout(HANG_S), Locking(count=3) as cluster:
        seen: list[tuple[bytes, int]] = []

        async def listener(message: ReceivedMessage) -> None:
            seen.append((message.body, message.attempt))
            if message.body == b"0":
                await message.give_up()
            elif message.body == b"1":
                raise RuntimeError("never")

        back = RequestCode.CONSUMER_SEND_MSG_BACK
        cluster.answers["broker-a", back] = refuse(ResponseCode.SYSTEM_BUSY)
        async with member(cluster, listener, replace(ORDER, attempts_max=3)):
            await until(lambda: (b"0", 2) in seen)
            del cluster.answers["broker-a", back]
            await until(lambda: (b"2", 1) in seen)
        dead = [command.ext for command in cluster.asked("broker-a", back)]
        assert {ext["delayLevel"] for ext in dead} == {"-1"}
        assert [ext["offset"] for ext in dead][-2:] == ["0", "1000"]
        assert [attempt for body, attempt in seen if body == b"1"] == [1, 2, 3]


async def test_a_listener_may_say_how_long_its_queue_rests() -> None:
    async with asyncio.timeout(HANG_S), Locking(count=1) as cluster:
        attempts: list[int] = []

        async def listener(message: ReceivedMessage) -> None:
            attempts.append(message.attempt)
            if message.attempt == 1:
                await message.retry(0.0)

        async with member(cluster, listener, replace(ORDER, suspend_s=1000.0)):
            await until(lambda: attempts == [1, 2])


async def test_a_lock_that_is_being_given_back_is_not_renewed_however_long_that_takes() -> None:
    """The broker would take the renewal for a new lock, and keep the queue from everybody for a minute."""

    async with asyncio.timeout(HANG_S), Locking(count=1) as cluster:
        listener = Listener()
        consumer = member(cluster, listener)
        await consumer.start()
        await until(lambda: listener.bodies)
        cluster.answers["broker-a", UNLOCK] = silence
        stopping = asyncio.create_task(consumer.stop())
        await until(lambda: cluster.locks(UNLOCK))
        asked = len(cluster.locks())
        # Many times as long as it takes to renew one.
        await asyncio.wait([stopping], timeout=HANG_S * ORDER.renew_every_s)
        given_back = {one["queueId"] for found in cluster.locks(UNLOCK) for one in found["mqSet"]}  # type: ignore[attr-defined]
        again = [one for found in cluster.locks()[asked + 1 :] for one in found["mqSet"]]  # type: ignore[attr-defined]
        assert given_back == {0} and not again
        await stopping


async def test_what_a_listener_says_first_counts() -> None:
    said: list[tuple[bytes, int, bool]] = []

    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"0" and message.attempt == 1:
            await message.retry(0.0)
            said.append((message.body, message.attempt, await message.ack()))
        else:
            said.append((message.body, message.attempt, await message.ack()))
            await message.retry(0.0)

    async with asyncio.timeout(HANG_S), Locking(count=2) as cluster, member(cluster, listener):
        await until(lambda: len(said) == 3)
    assert said == [(b"0", 1, False), (b"0", 2, True), (b"1", 1, True)]
