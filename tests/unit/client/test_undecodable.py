"""One message that cannot be decoded stops no queue: what stands before and behind it is delivered."""

from __future__ import annotations

import asyncio
import logging
import zlib

import pytest

from gantry.client.blocking import BlockingPuller
from gantry.client.consumer import ConsumerSettings, ReceivedMessage, StartFrom
from gantry.client.orderly import OrderlyConsumer
from gantry.client.pullconsumer import PullConsumer
from gantry.client.puller import Puller
from gantry.leaves import frames, records
from gantry.leaves.frames import Command
from gantry.model.route import MessageQueue
from gantry.wire import record as wire_record
from gantry.wire.codes import RequestCode
from gantry.wire.command import reply
from testkit.onequeue import FIRST, PULL, OneQueue, member, record
from testkit.patience import HANG_S
from testkit.scripted import body as document
from testkit.turning import until

QUEUE = MessageQueue("T", "broker-a", 0)
SEND_BACK = RequestCode.CONSUMER_SEND_MSG_BACK
BAD = 3


def packed(queue_offset: int, body: bytes) -> bytes:
    """A stored message that says that its body is compressed."""
    send = frames.Send(topic="T", body=body, born_host=bytes(8), group="p", sys_flag=0x1)
    send.queue_offset = queue_offset
    out = bytearray(records.size_of(send))
    records.encode_run(out, 0, 1000 * queue_offset, [send], 1, bytes(8))
    return bytes(out)


class Spoilt(OneQueue):
    """Six messages, of which the fourth is no zlib stream."""

    def __init__(self) -> None:
        super().__init__(count=6)
        for code in (PULL, RequestCode.LITE_PULL_MESSAGE):
            self.answers["broker-a", code] = self._spoilt
        self.answers["broker-a", RequestCode.LOCK_BATCH_MQ] = document(
            {"lockOKMQSet": [{"topic": "T", "brokerName": "broker-a", "queueId": 0}]}
        )

    def _spoilt(self, command: Command) -> Command:
        start = int(command.ext["queueOffset"])
        found = self._pull(command)
        if found.body:
            bodies = [packed(one, b"not zlib") if one == BAD else record(one) for one in range(start, 6)]
            found.body = b"".join(bodies)
        return found

    def sent_back(self) -> list[tuple[str, str]]:
        """Log offset and delay level of each."""
        return [(one.ext["offset"], one.ext["delayLevel"]) for one in self.asked("broker-a", SEND_BACK)]


GOOD = [b"0", b"1", b"2", b"4", b"5"]


@pytest.mark.parametrize("broadcast", [False, True])
async def test_a_listener_does_not_get_it_and_the_broker_is_asked_to_bring_it_again(broadcast: bool) -> None:
    came: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        came.append(message.body)

    settings = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=0.0, broadcast=broadcast)
    async with asyncio.timeout(HANG_S), Spoilt() as cluster:
        async with member(cluster, settings, listener=listener):
            await until(lambda: len(came) == 5 and (broadcast or cluster.sent_back()))
        assert sorted(came) == GOOD
        assert cluster.sent_back() == ([] if broadcast else [("3000", "0")])
        assert broadcast or cluster.told()[-1] == 6


async def test_an_orderly_listener_does_not_get_it_and_it_is_a_dead_letter() -> None:
    came: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        came.append(message.body)

    async with (
        asyncio.timeout(HANG_S),
        Spoilt() as cluster,
        OrderlyConsumer("g", nameserver=cluster.nameserver, subscription={"T": "*"}, settings=FIRST, listener=listener),
    ):
        await until(lambda: len(came) == 5)
        assert came == GOOD and cluster.sent_back() == [("3000", "-1")]


async def test_one_that_iterates_or_polls_gets_it_as_it_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(HANG_S), Spoilt() as cluster:
            async with member(cluster) as consumer:
                received = [await anext(consumer) for _ in range(6)]
            assert [one.body for one in received if not one.decode_error] == GOOD
            assert received[BAD].body == b"not zlib"
            async with PullConsumer("g", nameserver=cluster.nameserver, settings=FIRST) as poller:
                await poller.assign([QUEUE])
                polled = await poller.poll()
            assert [one.decode_error for one in polled] == [one.decode_error for one in received]
            async with Puller("g", nameserver=cluster.nameserver) as puller:
                assert list((await puller.pull(QUEUE, 0)).messages) == polled

            def blocking() -> None:
                with BlockingPuller("g", nameserver=cluster.nameserver) as one:
                    assert list(one.pull(QUEUE, 0).messages) == polled

            await asyncio.to_thread(blocking)
    assert caplog.text.count("cannot be decoded") == 2, "one line for each of the two consumers"


async def test_the_bytes_that_a_consumer_holds_are_those_of_decompressed_bodies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire_record, "INFLATED_BYTES_MAX", 1 << 20)
    settings = ConsumerSettings(start_from=StartFrom.FIRST, bytes_max=2_500_000, pull_wait_s=0.0)
    body = zlib.compress(bytes(1_000_000))

    def inflating(command: Command) -> Command:
        start = int(command.ext["queueOffset"])
        ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": "9", "minOffset": "0", "maxOffset": "9"}
        return reply(command, ext=ext, body=b"".join(packed(one, body) for one in range(start, 9)))

    async with asyncio.timeout(HANG_S), OneQueue(count=9) as cluster:
        cluster.answers["broker-a", PULL] = inflating
        async with member(cluster, settings) as consumer:
            held = [await anext(consumer) for _ in range(4)]
            # Two fill an answer; with four in work nothing more is pulled until some end.
            assert cluster.pulls() == [0, 2] and [len(one.body) for one in held] == [1_000_000] * 4
            for message in held:
                await message.ack()
            assert (await anext(consumer)).queue_offset == 4
            assert cluster.pulls()[2] == 4
