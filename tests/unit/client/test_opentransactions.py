"""Brokers that ask about a local transaction while it still runs."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from gantry.client.transaction import Message, Outcome, StoredMessage, TransactionProducer
from testkit.patience import HANG_S
from testkit.scripted import ScriptedCluster
from testkit.scriptedtransaction import check, outcomes
from testkit.turning import until


class LostConnectionError(Exception):
    """What a database driver raises: nobody knows whether it committed."""


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_transaction_that_still_runs_is_not_rolled_back_by_the_checker_of_its_own_process(
    is_lost: bool,
) -> None:
    rows: set[str] = set()

    async def checker(message: StoredMessage) -> Outcome:
        return Outcome.COMMIT if message.message_id in rows else Outcome.ROLLBACK

    async with (
        asyncio.timeout(HANG_S),
        ScriptedCluster() as cluster,
        TransactionProducer("p", checker, nameserver=cluster.nameserver) as producer,
    ):

        def ask(message_id: str) -> None:
            cluster.connections("broker-a")[0].send_oneway(check(message_id))

        with suppress(LostConnectionError):
            async with producer.transaction(Message("T", b"x")) as tx:
                ask(tx.message_id)
                await until(lambda: outcomes(cluster))
                rows.add(tx.message_id)
                if is_lost:
                    raise LostConnectionError
        assert outcomes(cluster) == (["0"] if is_lost else ["0", "8"])
        rows.clear()
        ask(tx.message_id)  # from now on the checker is asked
        await until(lambda: producer.check_counts.rolled_back)
