"""What becomes of stubs after their commit: sent in order of their key, placed in batches, never an error."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gantry.errors import RefusedError
from gantry.guarantee import migration
from gantry.guarantee.dialects import SQLITE
from gantry.guarantee.outbox import AsyncOutbox, Outbox
from gantry.guarantee.producing import OutgoingStub, StoredPlace, declare
from gantry.guarantee.running import run
from gantry.guarantee.sending import SendingSettings, StubSender
from gantry.guarantee.statements import statements
from gantry.model.message import Message
from testkit.turning import until


class Broker:
    """A producer whose sends end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.answers: dict[str, asyncio.Future[None]] = {}

    async def send(self, message: Message, *, key: str, copy: Any) -> Any:
        self.begun.append(copy.message_id)
        self.answers[copy.message_id] = asyncio.get_running_loop().create_future()
        await self.answers[copy.message_id]
        queue = SimpleNamespace(topic=message.topic, broker_name="b", queue_id=0)
        return SimpleNamespace(message_id=copy.message_id, queue=queue, queue_offset=len(self.begun))


class Database:
    """Where places are stored; `fails` is how often it does not."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.fails = 0

    async def save(self, places: Sequence[StoredPlace]) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("the database is away")
        self.batches.append([place.message_id for place in places])


def stub(name: str, key: str = "") -> OutgoingStub:
    return OutgoingStub(name, Message("Orders", b"x"), key)


def sender(broker: Broker, database: Database, **more: Any) -> StubSender:
    found = StubSender(broker, database.save, SendingSettings(places_after_s=0.0, **more))  # type: ignore[arg-type]
    found.start()
    return found


async def test_messages_of_one_key_wait_for_each_other_and_others_do_not() -> None:
    broker, database = Broker(), Database()
    sending = sender(broker, database)
    for name, key in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("x", "")):
        assert sending.offer(stub(name, key))
    await until(lambda: broker.begun == ["a1", "b1", "x"])
    broker.answers["a1"].set_exception(RefusedError(14, "no room"))
    await until(lambda: "a2" in broker.answers)
    for name in ("a2", "b1", "x"):
        broker.answers[name].set_result(None)
    await sending.close()
    assert (sending.counts.sent, sending.counts.left_to_resend, sending.counts.placed) == (3, 1, 3)
    assert sorted(name for batch in database.batches for name in batch) == ["a2", "b1", "x"]


async def test_a_send_that_ended_in_any_way_gives_its_place_to_the_next() -> None:
    broker, database = Broker(), Database()
    sending = sender(broker, database, in_flight_max=1)
    for name in ("one", "two", "three"):
        assert sending.offer(stub(name))
    await until(lambda: broker.begun == ["one"])
    broker.answers["one"].set_exception(RefusedError(14, "no room"))
    await until(lambda: broker.begun == ["one", "two"])
    broker.answers["two"].set_result(None)
    await until(lambda: broker.begun == ["one", "two", "three"])
    broker.answers["three"].set_result(None)
    await until(lambda: not sending._sends)
    await sending.close()


async def test_what_is_too_much_or_cannot_be_placed_is_left_to_a_resend() -> None:
    broker, database = Broker(), Database()
    database.fails = 1
    sending = StubSender(broker, database.save, SendingSettings(waiting_max=1, drain_s=0.01))  # type: ignore[arg-type]
    assert [sending.offer(stub("one")), sending.offer(stub("two"))] == [True, False]
    sending.start()
    await until(lambda: broker.begun == ["one"])
    broker.answers["one"].set_result(None)
    await until(lambda: sending.counts.not_placed == 1)
    await sending.close()
    assert (sending.counts.left_to_resend, database.batches) == (1, [])


@pytest.fixture
def connect(tmp_path: Path) -> Any:
    found = partial(sqlite3.connect, tmp_path / "tables.db", timeout=30.0)
    with closing(found()) as connection:
        migration.install(connection, SQLITE, 0)
        run(declare(statements(SQLITE, "named"), "Orders", "packing", "retry", 0, "test"), connection)
        connection.commit()
    return found


def stubs(connect: Any) -> int:
    with closing(connect()) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM guarantee_stub").fetchone()[0])


def test_an_outbox_refuses_what_it_could_not_send_and_raises_nothing_after_the_commit(
    connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SendingSettings(drain_s=0.01)
    outbox = Outbox("sqlite", connect, nameserver="127.0.0.1:1", group="shop")
    object.__setattr__(outbox._settings, "sending", settings)
    with closing(connect()) as connection:
        with pytest.raises(RuntimeError, match="not open"), outbox.transaction(connection):
            pytest.fail("it was never entered")
        with outbox:
            with outbox.transaction(connection) as tx:
                for wrong in (Message("", b"x"), Message("Orders", b"x", delay_s=5), Message("Orders", bytes(5 << 20))):
                    with pytest.raises(ValueError):
                        tx.send(wrong)
                with pytest.raises(ValueError, match="flag"):
                    tx.send(Message("Orders", b"x", flag=7))
                with pytest.raises(TypeError, match="groups="):
                    tx.send(Message("Orders", b"x"), groups="packing")
                assert stubs(connect) == 0
            with pytest.raises(RuntimeError, match="ended"):
                tx.send(Message("Orders", b"x"))
            with monkeypatch.context() as elsewhere:  # as after a fork
                elsewhere.setattr(os, "getpid", lambda: 0)
                with pytest.raises(RuntimeError, match="fork"), outbox.transaction(connection):
                    pytest.fail("nothing would be sent")
            closing_late = outbox.transaction(connection)
            closing_late.__enter__().send(Message("Orders", b"x"))
        closing_late.__exit__(None, None, None)
    assert stubs(connect) == 1


async def test_an_outbox_of_coroutines_that_would_send_nothing_refuses_the_business() -> None:
    async def connect() -> Any:
        pytest.fail("there is nothing to store")

    async def refuses(outbox: AsyncOutbox) -> None:
        with pytest.raises(RuntimeError, match="enter it first"):
            async with outbox.transaction(None):
                pytest.fail("nothing would be sent")

    outbox = AsyncOutbox("sqlite", connect, nameserver="127.0.0.1:1", group="shop")
    await refuses(outbox)
    async with outbox:
        pass
    await refuses(outbox)
