"""Checks while they wait for the checker."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from gantry.client.producing.transactionchecks import CheckCounts, Checks, CheckSettings
from gantry.client.requests.transaction_requests import Outcome
from gantry.leaves.frames import Command, encode
from gantry.model.message import StoredMessage
from gantry.transport.connection import Connection
from gantry.transport.tasks import Tasks
from gantry.wire.command import reply
from testkit.fake_connection import FakeConnection
from testkit.patience import HANG_S
from testkit.scriptedtransaction import check
from testkit.turning import until


class Broker(FakeConnection):
    """The other end: answers each end with a code, and keeps them."""

    def __init__(self, code: int = 0) -> None:
        super().__init__()
        self._code = code

    def invoke(self, command: Command, timeout_s: float) -> asyncio.Future[Command]:
        """Written, and answered at once."""
        self.write(encode(command))
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        future.set_result(reply(command, self._code, "no"))
        return future

    @property
    def connection(self) -> Connection:
        """As its users see it."""
        return cast("Connection", self)


class Database:
    """A checker that can be held up."""

    def __init__(self, outcome: Outcome = Outcome.COMMIT) -> None:
        self.outcome = outcome
        self.asked: list[StoredMessage] = []
        self.open = asyncio.Event()

    async def check(self, message: StoredMessage) -> Outcome:
        """Answer when the gate is open."""
        self.asked.append(message)
        await self.open.wait()
        return self.outcome


def working(checks: Checks) -> Tasks:
    """The tasks of a producer that answer checks."""
    tasks = Tasks()
    for _ in range(checks._settings.concurrency):
        tasks.own(asyncio.create_task(checks.work()))
    return tasks


async def test_a_full_hold_drops_and_counts() -> None:
    async with asyncio.timeout(HANG_S):
        broker, database = Broker(), Database()
        checks = Checks("p", database.check, CheckSettings(held_max=3, concurrency=1))
        tasks = working(checks)
        checks.offer(broker.connection, check("first"))
        await until(lambda: database.asked)
        for number in range(5):
            checks.offer(broker.connection, check(f"ID{number}"))
        assert (checks.counts.received, checks.counts.dropped) == (6, 2)
        database.open.set()
        await until(lambda: checks.counts.committed == 4)
        assert [message.message_id for message in database.asked] == ["first", "ID0", "ID1", "ID2"]
        checks.offer(broker.connection, check("again"))
        await until(lambda: checks.counts.committed == 5)
        await tasks.close()


async def test_large_messages_fill_the_hold_earlier() -> None:
    checks = Checks("p", Database().check, CheckSettings(held_bytes_max=5000))
    for number in range(3):
        checks.offer(Broker().connection, check(f"ID{number}", body=bytes(2000)))
    assert checks.counts.dropped == 1


async def test_a_newer_check_of_a_waiting_half_takes_its_place() -> None:
    async with asyncio.timeout(HANG_S):
        broker, database = Broker(), Database()
        checks = Checks("p", database.check, CheckSettings())
        checks.offer(broker.connection, check("ID1", half_offset=1, log_offset=100))
        checks.offer(broker.connection, check("ID1", half_offset=2, log_offset=200))
        database.open.set()
        tasks = working(checks)
        await until(lambda: checks.counts.committed)
        await tasks.close()
        (end,) = broker.take()
        assert (end.ext["tranStateTableOffset"], end.ext["commitLogOffset"]) == ("2", "200")
        assert len(database.asked) == 1 and checks._held_bytes == 0


async def test_the_bytes_of_a_check_that_takes_anothers_place_are_counted() -> None:
    async with asyncio.timeout(HANG_S):
        broker, database = Broker(), Database()
        checks = Checks("p", database.check, CheckSettings(held_bytes_max=5000))
        checks.offer(broker.connection, check("ID1", body=bytes(1)))
        checks.offer(broker.connection, check("ID1", body=bytes(4000)))
        checks.offer(broker.connection, check("ID2", body=bytes(4000)))
        assert checks.counts.dropped == 1
        database.open.set()
        tasks = working(checks)
        await until(lambda: checks.counts.committed)
        checks.offer(broker.connection, check("ID3", body=bytes(4000)))
        await until(lambda: checks.counts.committed == 2)
        await tasks.close()
        assert checks.counts.dropped == 1, "what was answered is not held any more"


async def raises(_: StoredMessage) -> Outcome:
    raise RuntimeError("the database is away")


async def gives_up(_: StoredMessage) -> Outcome:
    raise asyncio.CancelledError


async def never_ends(_: StoredMessage) -> Outcome:
    await asyncio.Event().wait()
    return Outcome.COMMIT


async def talks_nonsense(_: StoredMessage) -> Outcome:
    return cast("Outcome", True)


async def does_not_know(_: StoredMessage) -> Outcome:
    return Outcome.UNKNOWN


@pytest.mark.parametrize("checker", [raises, gives_up, never_ends, talks_nonsense, does_not_know])
async def test_a_checker_without_an_answer_has_said_unknown(checker: object) -> None:
    async with asyncio.timeout(HANG_S):
        broker = Broker()
        checks = Checks("p", checker, CheckSettings(timeout_s=0.02, concurrency=1))  # type: ignore[arg-type]
        tasks = working(checks)
        for number in range(2):  # the second shows that the first did not end its task
            checks.offer(broker.connection, check(f"ID{number}"))
        await until(lambda: checks.counts.unknown == 2)
        await tasks.close()
        assert [(end.ext["commitOrRollback"], end.is_oneway) for end in broker.take()] == [("0", True)] * 2


async def test_what_cannot_be_read_or_is_for_another_group_is_left_alone() -> None:
    database = Database()
    checks = Checks("p", database.check, CheckSettings())
    cut = check("ID1")
    cut.body = cut.body[:-1]
    empty = check("ID2")
    empty.body = b""
    nowhere = check("ID3")
    del nowhere.ext["commitLogOffset"]
    for command in (cut, empty, nowhere, check("ID4", group="q")):
        checks.offer(Broker().connection, command)
    assert checks.counts == CheckCounts(received=4, malformed=4)


@pytest.mark.parametrize(
    ("outcome", "code", "counts"),
    [
        (Outcome.COMMIT, 0, CheckCounts(1, committed=1)),
        (Outcome.ROLLBACK, 0, CheckCounts(1, rolled_back=1)),
        (Outcome.COMMIT, 1, CheckCounts(1, unanswered=1)),
    ],
)
async def test_what_became_of_a_check_is_counted(outcome: Outcome, code: int, counts: CheckCounts) -> None:
    async with asyncio.timeout(HANG_S):
        database = Database(outcome)
        database.open.set()
        checks = Checks("p", database.check, CheckSettings())
        tasks = working(checks)
        checks.offer(Broker(code).connection, check("ID1"))
        await until(lambda: checks.counts == counts)
        await tasks.close()
