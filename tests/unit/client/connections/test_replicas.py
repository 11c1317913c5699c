"""Whom a consumer asks: the master, a slave that the master names, a slave while the master is away."""

from __future__ import annotations

import asyncio

import pytest

from gantry.client.connections.replicas import Replicas
from gantry.client.consumer import Consumer, ConsumerSettings, StartFrom
from gantry.client.pullconsumer import PullConsumer
from gantry.client.puller import Puller
from gantry.client.requests.questions import PullSettings
from gantry.client.results import PullResult, PullStatus
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from gantry.leaves.frames import Command
from gantry.model.route import MessageQueue
from gantry.model.subscription import Subscription
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.onequeue import COMMIT, MASTER, MEMBERS, PULL, SLAVE, Group
from testkit.patience import HANG_S
from testkit.scripted import refuse
from testkit.turning import until

OTHER = "broker-a/2"
FIRST = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=0.0, commit_every_s=0.02)


async def pulled(puller: Puller, offset: int) -> int:
    return (await puller.pull(MessageQueue("T", MASTER, 0), offset)).next_offset


async def test_the_next_pull_of_a_queue_goes_where_the_answer_says_and_back() -> None:
    async with asyncio.timeout(HANG_S), Group(30) as group, Puller("g", nameserver=group.nameserver) as puller:
        group.answers[MASTER, PULL] = group.suggesting(1)
        assert [await pulled(puller, offset) for offset in (0, 10, 20)] == [10, 20, 30]
        assert group.offsets_pulled(MASTER) == [0, 20] and group.offsets_pulled(SLAVE) == [10]


@pytest.mark.parametrize("how", ["refuses", "is gone", "is not known"])
async def test_a_suggested_slave_that_fails_is_left_for_the_master_and_not_asked_again_at_once(how: str) -> None:
    async with asyncio.timeout(HANG_S), Group(30) as group, Puller("g", nameserver=group.nameserver) as puller:
        group.answers[MASTER, PULL] = group.suggesting(1)
        group.answers[SLAVE, PULL] = refuse(ResponseCode.SYSTEM_ERROR)
        if how == "is gone":
            await group.servers[SLAVE].close()
        elif how == "is not known":
            group.gone.add(SLAVE)
        assert [await pulled(puller, offset) for offset in (0, 10, 20)] == [10, 20, 30]
        assert group.offsets_pulled(MASTER) == [0, 10, 20]
        assert len(group.offsets_pulled(SLAVE)) == (how == "refuses")


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "not known yet"])
async def test_while_the_master_is_away_its_slave_is_read_and_then_the_master_again(is_known: bool) -> None:
    async with asyncio.timeout(HANG_S), Group(30) as group, Puller("g", nameserver=group.nameserver) as puller:
        assert await pulled(puller, 0) == 10
        await group.lose_master(is_known)
        assert await pulled(puller, 10) == 20
        assert await puller.max_offset(MessageQueue("T", MASTER, 0)) == 30
        await puller.commit(MessageQueue("T", MASTER, 0), 20)
        assert len(group.asked(SLAVE, COMMIT)) == 1 and not group.asked(MASTER, COMMIT)
        await group.bring_master()
        await until(lambda: group.asked(MASTER, RequestCode.GET_MAX_OFFSET))
        await until(lambda: not puller._replicas._away)
        assert await pulled(puller, 20) == 30
        assert group.offsets_pulled(MASTER) == [0, 20]


async def test_a_master_that_fell_silent_does_not_cost_every_pull_its_patience() -> None:
    async with asyncio.timeout(HANG_S), Group(30) as group, Puller("g", nameserver=group.nameserver) as puller:

        def hang_up(_: Command) -> None:
            for connection in group.connections(MASTER):
                connection.abort("no answer")

        group.answers[MASTER, PULL] = group.answers[MASTER, RequestCode.GET_MAX_OFFSET] = hang_up
        assert [await pulled(puller, offset) for offset in (0, 10, 20)] == [10, 20, 30]
        assert group.offsets_pulled(MASTER) == [0] and group.offsets_pulled(SLAVE) == [0, 10, 20]


class Recorder:
    """Session and routes in one: notes how long an answer may take."""

    def __init__(self, members: dict[int, str]) -> None:
        self.patience: list[float] = []
        self._members = members

    def members(self, queue: MessageQueue) -> dict[int, str]:
        return dict(self._members)

    async def ask(self, address: str, question: object, timeout_s: float) -> PullResult:
        self.patience.append(timeout_s)
        return PullResult(PullStatus.NO_NEW_MESSAGE, 0, 0, 0)


@pytest.mark.parametrize(("members", "patience"), [({0: "m:1"}, 30.0), ({0: "m:1", 1: "s:1"}, 18.0)])
async def test_a_pull_is_waited_for_less_long_where_there_is_a_slave_to_turn_to(
    members: dict[int, str], patience: float
) -> None:
    async with asyncio.timeout(HANG_S):
        group = Recorder(members)
        pulling = PullSettings("g", Subscription("T", "*"), wait_s=15.0)
        replicas = Replicas(group, group)  # type: ignore[arg-type]
        await replicas.pull(MessageQueue("T", MASTER, 0), 0, pulling, None, 15.0)
        assert group.patience == [patience]


async def test_a_slave_that_does_not_serve_is_passed_over_for_the_next_one() -> None:
    async with asyncio.timeout(HANG_S):
        async with Group(30, slaves=2) as group, Puller("g", nameserver=group.nameserver) as puller:
            assert await pulled(puller, 0) == 10
            await group.lose_master()
            group.answers[SLAVE, PULL] = refuse(ResponseCode.SYSTEM_ERROR)
            with pytest.raises((UnreachableError, OutcomeUnknownError)):
                await pulled(puller, 10)  # two are tried, not the whole group
            assert await pulled(puller, 10) == 20
            assert await pulled(puller, 20) == 30
            assert group.offsets_pulled(SLAVE) == [10] and group.offsets_pulled(OTHER) == [10, 20]


async def test_what_the_master_refuses_is_refused_and_no_slave_is_asked() -> None:
    async with asyncio.timeout(HANG_S), Group(30) as group, Puller("g", nameserver=group.nameserver) as puller:
        group.answers[MASTER, PULL] = refuse(ResponseCode.NO_PERMISSION)
        with pytest.raises(RefusedError):
            await pulled(puller, 0)
        assert not group.asked(SLAVE, PULL)


async def test_a_consumer_is_known_to_slaves_before_they_are_needed_and_says_goodbye_to_them() -> None:
    async with asyncio.timeout(HANG_S), Group(0) as group:
        async with Consumer("g", nameserver=group.nameserver, subscription={"T": "*"}, settings=FIRST):
            await until(lambda: group.asked(MASTER, PULL))
            assert group.asked(SLAVE, RequestCode.HEART_BEAT)
        assert group.asked(SLAVE, RequestCode.UNREGISTER_CLIENT)
        assert not group.asked(SLAVE, MEMBERS) and not group.asked(SLAVE, PULL)


async def test_progress_goes_to_the_slave_while_the_master_is_away_and_to_the_master_when_it_is_back() -> None:
    async with asyncio.timeout(HANG_S), Group(10) as group:
        consumer = Consumer("g", nameserver=group.nameserver, subscription={"T": "*"}, settings=FIRST)
        async with consumer:
            messages = [await anext(consumer) for _ in range(10)]
            await group.lose_master()
            await until(lambda: group.asked(SLAVE, PULL))
            for message in messages:
                await message.ack()
            await until(lambda: group.heard(SLAVE)[-1:] == ["10"])
            assert "10" not in group.heard(MASTER)
            assert all("commitOffset" not in command.ext for command in group.asked(SLAVE, PULL))
            assert consumer.queues, "nobody takes the queue away meanwhile"
            await group.bring_master()
            await until(lambda: group.heard(MASTER)[-1:] == ["10"])


async def test_a_pull_consumer_reads_on_from_a_slave() -> None:
    async with asyncio.timeout(HANG_S), Group(30) as group:
        lite = RequestCode.LITE_PULL_MESSAGE
        for name in (MASTER, SLAVE):
            group.answers[name, lite] = group._pull
        settings = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=0.0, queue_messages_max=10)
        async with PullConsumer("g", nameserver=group.nameserver, settings=settings) as consumer:
            await consumer.assign(await consumer.topic_queues("T"))
            first = await consumer.poll(count_max=10)
            await group.lose_master()
            seen = [message.queue_offset for message in first]
            while len(seen) < 30:
                seen += [message.queue_offset for message in await consumer.poll()]
            assert seen == list(range(30)) and group.asked(SLAVE, lite)


async def test_a_broker_that_is_behind_and_wants_to_be_asked_again_is_not_asked_in_a_circle() -> None:
    async with asyncio.timeout(HANG_S), Group(0) as group:

        def behind(command: Command) -> Command:
            ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0"}
            return reply(command, ResponseCode.PULL_RETRY_IMMEDIATELY, ext=ext)

        group.answers[MASTER, PULL] = behind
        async with Consumer("g", nameserver=group.nameserver, subscription={"T": "*"}, settings=FIRST):
            await until(lambda: group.asked(MASTER, PULL))
            await asyncio.sleep(0.2)
            assert len(group.asked(MASTER, PULL)) < 8
