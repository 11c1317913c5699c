"""Our transactional producer against Apache's brokers: it says what they expect, and answers what they ask."""

import asyncio
from pathlib import Path

import pytest

from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom
from gantry.client.settings import ProducerSettings
from gantry.client.transaction import (
    Message,
    Outcome,
    Rollback,
    StoredMessage,
    TransactionProducer,
    TransactionSettings,
)
from interop import servers
from testkit.patience import HANG_S


class LostConnectionError(Exception):
    """The outcome is unknown."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("every_tool")
@pytest.mark.parametrize("version", ["4.9.7", "5.x"])
def test_what_was_committed_or_answered_with_commit_is_delivered_once(version: str, tmp_path: Path) -> None:
    server = servers.make(f"apache-{version}", tmp_path / "home", tmp_path / "data")
    server.start()
    try:
        servers.create_topic(server, "Orders")
        asyncio.run(asyncio.wait_for(story(server.name_server), HANG_S))
    finally:
        server.close()


PATIENT = TransactionSettings(sending=ProducerSettings(timeout_s=HANG_S), end_timeout_s=HANG_S)


async def story(name_server: str) -> None:
    asked: list[bytes] = []
    received: list[bytes] = []
    every = asyncio.Event()

    async def checker(message: StoredMessage) -> Outcome:
        asked.append(message.body)
        return Outcome.ROLLBACK if message.body == b"never" else Outcome.COMMIT

    async def listen(message: ReceivedMessage) -> None:
        received.append(message.body)
        if {b"committed", b"later"} <= set(received):
            every.set()

    settings = ConsumerSettings(start_from=StartFrom.FIRST)
    async with (
        TransactionProducer("tx-own", checker, nameserver=name_server, settings=PATIENT) as producer,
        Consumer("own", nameserver=name_server, subscription={"Orders": "*"}, listener=listen, settings=settings),
    ):
        async with producer.transaction(Message("Orders", b"committed")) as tx:
            pass
        assert tx.is_settled
        async with producer.transaction(Message("Orders", b"rolled back")):
            raise Rollback
        for body in (b"later", b"never"):
            with pytest.raises(LostConnectionError):
                async with producer.transaction(Message("Orders", body)):
                    raise LostConnectionError
        await every.wait()
        async with asyncio.timeout(HANG_S):
            while b"never" not in asked:  # noqa: ASYNC110  there is no event
                await asyncio.sleep(0.1)
        await asyncio.sleep(5.0)  # two rounds of checks: nothing more comes
    assert sorted(received) == [b"committed", b"later"]
    assert set(asked) == {b"later", b"never"}
    assert producer.check_counts.unanswered == producer.check_counts.malformed == 0
