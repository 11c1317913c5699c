"""What a transactional producer tells brokers, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from gantry.client.hooks import Sending
from gantry.client.producer import ProducerSettings
from gantry.client.transaction import (
    CheckSettings,
    Message,
    Outcome,
    Rollback,
    StoredMessage,
    Transaction,
    TransactionProducer,
    TransactionSettings,
)
from gantry.errors import OutcomeUnknownError, RefusedError
from gantry.leaves import properties
from gantry.leaves.frames import Command
from gantry.wire import heartbeat
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.patience import HANG_S
from testkit.scripted import Answer, ScriptedCluster, refuse, silence, stored
from testkit.scriptedtransaction import check, ends, outcomes
from testkit.turning import until

SEND, END = RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION
QUICK = TransactionSettings(
    ProducerSettings(timeout_s=1.5, attempt_timeout_s=0.5), CheckSettings(timeout_s=0.05), end_timeout_s=0.5
)
PATIENT = TransactionSettings(  # where every answer comes, however slow the machine
    ProducerSettings(timeout_s=30.0, attempt_timeout_s=30.0), CheckSettings(timeout_s=30.0), end_timeout_s=30.0
)
ORDER = Message("Orders", b"x", keys="o-1")


async def ask_later(_: StoredMessage) -> Outcome:
    return Outcome.UNKNOWN


def made(cluster: ScriptedCluster, settings: TransactionSettings = PATIENT) -> TransactionProducer:
    return TransactionProducer("p", ask_later, nameserver=cluster.nameserver, settings=settings)


class LostConnectionError(Exception):
    """What a database driver raises: nobody knows whether it committed."""


class Noting:
    """A hook: gives the message a property, and notes what became of it."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    @contextmanager
    def sending(self, sending: Sending) -> Iterator[None]:
        sending.messages = [replace(message, properties={"trace": "42"}) for message in sending.messages]
        try:
            yield
        except RefusedError:
            self.ended.append("refused")
            raise
        assert sending.result is not None
        self.ended.append(f"{sending.group} {sending.result.queue.topic} {sending.result.message_id}")


async def test_hooks_are_around_the_half_and_leave_it_its_id() -> None:
    hook = Noting()
    settings = replace(PATIENT, sending=replace(PATIENT.sending, hooks=(hook,)))
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster:
        cluster.answers["broker-a", SEND] = stored
        async with made(cluster, settings) as producer:
            async with producer.transaction(ORDER) as tx:
                pass
            cluster.answers["broker-a", SEND] = refuse(ResponseCode.MESSAGE_ILLEGAL)
            with pytest.raises(RefusedError):
                async with producer.transaction(ORDER):
                    raise AssertionError("the half was refused")
        (sent, _) = cluster.asked("broker-a", SEND)
        pairs = properties.parse(sent.ext["i"].encode())
        assert (pairs["trace"], pairs["UNIQ_KEY"], pairs["TRAN_MSG"]) == ("42", tx.message_id, "true")
    assert hook.ended == [f"p Orders {tx.message_id}", "refused"]


# What the block does -> what the broker is told, and what leaves the block.


def nothing(_: Transaction) -> None:
    return


def raise_rollback(_: Transaction) -> None:
    raise Rollback


def lose_connection(_: Transaction) -> None:
    raise LostConnectionError


def cancel(_: Transaction) -> None:
    raise asyncio.CancelledError


def committed_then_lost(tx: Transaction) -> None:
    tx.commit()
    raise LostConnectionError


def rolled_back_then_lost(tx: Transaction) -> None:
    tx.rollback()
    raise LostConnectionError


def committed_and_raise_rollback(tx: Transaction) -> None:
    tx.commit()
    raise Rollback


@pytest.mark.parametrize(
    ("body", "told", "raised"),
    [
        (nothing, ["8"], None),
        (raise_rollback, ["12"], None),
        (Transaction.rollback, ["12"], None),
        (Transaction.leave, [], None),
        (lose_connection, [], LostConnectionError),
        (cancel, [], asyncio.CancelledError),
        (committed_then_lost, ["8"], LostConnectionError),
        (rolled_back_then_lost, ["12"], LostConnectionError),
        (committed_and_raise_rollback, [], None),
    ],
)
async def test_the_end_of_a_block_is_the_outcome(
    body: Callable[[Transaction], None], told: list[str], raised: type[BaseException] | None
) -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster, made(cluster) as producer:
        error: BaseException | None = None
        try:
            async with producer.transaction(ORDER) as tx:
                body(tx)
        except (LostConnectionError, asyncio.CancelledError) as caught:
            error = caught
        assert (None if error is None else type(error)) is raised
        assert outcomes(cluster) == told
        assert tx.is_settled == bool(told)


async def test_an_end_names_the_half_that_the_broker_stored() -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster:
        cluster.answers["broker-a", SEND] = lambda command: reply(
            command, ext={"msgId": "7F00000100002A9F0000000000000384", "queueId": "1", "queueOffset": "41"}
        )
        async with made(cluster) as producer, producer.transaction(ORDER, immunity_s=60) as tx:
            pass
        (half,), (end,) = cluster.asked("broker-a", SEND), ends(cluster)
        assert int(half.ext["f"]) & 0xC == 0x4
        pairs = properties.parse(half.ext["i"].encode())
        assert pairs == {
            "UNIQ_KEY": tx.message_id,
            "KEYS": "o-1",
            "TRAN_MSG": "true",
            "PGROUP": "p",
            "CHECK_IMMUNITY_TIME_IN_SECONDS": "60",
        }
        assert not end.is_oneway
        assert end.ext == {
            "producerGroup": "p",
            "tranStateTableOffset": "41",
            "commitLogOffset": "900",
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": tx.message_id,
            "transactionId": tx.message_id,
        }


@pytest.mark.parametrize(
    "code",
    [ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE],
)
async def test_after_a_half_that_is_not_safe_nothing_is_executed_and_it_is_rolled_back(code: int) -> None:
    def unsafe(command: Command) -> Command:
        answer = stored(command)
        answer.code = code
        return answer

    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster, made(cluster) as producer:
        cluster.answers["broker-a", SEND] = unsafe
        with pytest.raises(RefusedError, match="rolled back"):
            async with producer.transaction(ORDER):
                pytest.fail("executed")
        assert outcomes(cluster) == ["12"]


def unsafe_nowhere(command: Command) -> Command:
    return reply(command, ResponseCode.FLUSH_DISK_TIMEOUT, "slow")


def stored_by_a_sealed_master(command: Command) -> Command:
    answer = stored(command)
    answer.code, answer.remark = ResponseCode.SYSTEM_BUSY, "another master may lead by now"
    return answer


@pytest.mark.parametrize("answer", [silence, unsafe_nowhere, stored_by_a_sealed_master])
async def test_a_half_that_may_be_there_is_not_sent_again_and_nothing_is_executed(answer: Answer) -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster(groups=2) as cluster, made(cluster, QUICK) as producer:
        for name in cluster.names:
            cluster.answers[name, SEND] = answer
        with pytest.raises(OutcomeUnknownError):
            async with producer.transaction(ORDER):
                pytest.fail("executed")
        assert sum(len(cluster.asked(name, SEND)) for name in cluster.names) == 1
        assert outcomes(cluster) == outcomes(cluster, "broker-b") == []
        assert not producer._open, "a check of it is answered by the checker"


async def test_a_half_that_is_surely_not_there_is_sent_elsewhere() -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster(groups=2) as cluster, made(cluster) as producer:
        cluster.answers["broker-a", SEND] = refuse(ResponseCode.SYSTEM_BUSY)
        for _ in range(2):
            async with producer.transaction(ORDER):
                pass
        assert outcomes(cluster, "broker-b") == ["8", "8"]
        assert outcomes(cluster) == []


async def test_a_refused_outcome_is_raised_because_others_have_decided() -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster, made(cluster) as producer:
        cluster.answers["broker-a", END] = refuse(ResponseCode.SYSTEM_ERROR, "rolled back before")
        with pytest.raises(RefusedError, match="rolled back before"):
            async with producer.transaction(ORDER):
                pass
        with pytest.raises(LostConnectionError):  # the cause is not hidden by its consequence
            async with producer.transaction(ORDER) as tx:
                committed_then_lost(tx)


@pytest.mark.parametrize(
    "answer",
    [
        silence,
        refuse(ResponseCode.ILLEGAL_OPERATION),
        refuse(ResponseCode.SYSTEM_BUSY),
        refuse(ResponseCode.TOPIC_NOT_EXIST),
    ],
)
async def test_an_end_that_does_not_arrive_is_left_to_the_checker(answer: Answer) -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster, made(cluster, QUICK) as producer:
        cluster.answers["broker-a", END] = answer
        async with producer.transaction(ORDER) as tx:
            pass
        assert tx.outcome is Outcome.COMMIT
        assert not tx.is_settled
        assert len(ends(cluster)) == 1


@pytest.mark.parametrize(
    ("outcome", "told"), [(Outcome.COMMIT, ["8"]), (Outcome.ROLLBACK, ["12"]), (Outcome.UNKNOWN, [])]
)
async def test_a_listener_says_the_outcome(outcome: Outcome, told: list[str]) -> None:
    async def execute(transaction: Transaction) -> Outcome:
        assert transaction.half is not None
        return outcome

    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster, made(cluster) as producer:
        transaction = await producer.send(ORDER, execute)
        assert transaction.outcome is outcome
        assert outcomes(cluster) == told


async def test_a_listener_that_raises_leaves_the_outcome_unknown() -> None:
    async def execute(_: Transaction) -> Outcome:
        raise LostConnectionError

    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster, made(cluster) as producer:
        with pytest.raises(LostConnectionError):
            await producer.send(ORDER, execute)
        assert outcomes(cluster) == []


def greeted(cluster: ScriptedCluster, name: str) -> int:
    beats = cluster.asked(name, RequestCode.HEART_BEAT)
    return sum(heartbeat.read(command.body).producer_groups == ("p",) for command in beats)


async def test_a_producer_that_has_sent_nothing_is_known_to_every_broker() -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster(groups=2) as cluster, made(cluster):
        await until(lambda: greeted(cluster, "broker-a") and greeted(cluster, "broker-b"))


async def test_a_broker_that_comes_back_is_met_again() -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster, made(cluster):
        await until(lambda: greeted(cluster, "broker-a") == 1)
        await cluster.servers["broker-a"].close()
        await cluster.listen("broker-a")
        await until(lambda: greeted(cluster, "broker-a") == 2)


async def test_a_check_is_answered_on_its_connection_as_coming_from_a_check() -> None:
    asked: list[StoredMessage] = []

    async def checker(message: StoredMessage) -> Outcome:
        asked.append(message)
        return Outcome.COMMIT

    async with (
        asyncio.timeout(HANG_S),
        ScriptedCluster() as cluster,
        TransactionProducer("p", checker, nameserver=cluster.nameserver) as producer,
    ):
        await until(lambda: cluster.connections("broker-a"))
        cluster.connections("broker-a")[0].send_oneway(check("ID1", body=b"tea", half_offset=7, log_offset=800))
        await until(lambda: producer.check_counts.committed)
        (message,) = asked
        assert (message.topic, message.body, message.message_id, message.keys) == (
            "Orders",
            b"tea",
            "ID1",
            ("o-1",),
        )
        (end,) = ends(cluster)
        assert end.ext["fromTransactionCheck"] == "true"
        assert (end.ext["tranStateTableOffset"], end.ext["commitLogOffset"]) == ("7", "800")
        assert (end.ext["commitOrRollback"], end.ext["transactionId"]) == ("8", "ID1")
        assert len(cluster.connections("broker-a")) == 1


@pytest.mark.parametrize("immunity_s", [0, -1])
async def test_an_immunity_is_a_time(immunity_s: int) -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster, made(cluster) as producer:
        with pytest.raises(ValueError, match="immunity"):
            producer.transaction(ORDER, immunity_s=immunity_s)


async def test_a_broker_has_room_for_what_it_adds() -> None:
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster, made(cluster) as producer:
        with pytest.raises(ValueError, match="31743 are allowed"):
            producer.transaction(Message("Orders", b"", properties={"a": "x" * 32_000}))
