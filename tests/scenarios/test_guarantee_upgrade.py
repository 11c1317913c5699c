"""A filled database of version 1 is migrated while resend processes and consumers of version 2 run already."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

from gantry.client.consumer import Consumer, ConsumerSettings, StartFrom
from gantry.clock import SystemClock
from gantry.guarantee.databases import BlockingDatabase
from gantry.guarantee.dialects import SQLITE, rendered
from gantry.guarantee.resending import ResendRules
from gantry.guarantee.resendservice import ResendService, ResendServiceSettings
from testkit import guaranteefirst as first
from testkit.clusterplay import running_cluster
from testkit.commandline import run
from testkit.guaranteeshop import SAY, Stubs
from testkit.turning import until

CONFIRMED, OPEN = 2500, 30


class Upgraded(Stubs):
    """Tables of version 1: confirmed messages that packing logged, and open ones that nobody got."""

    def __init__(self, path: Path) -> None:
        self.path, self.address = path, f"sqlite:///{path}"
        self.connect = partial(sqlite3.connect, path, timeout=60.0)
        self.database = BlockingDatabase(self.connect)
        content = {"topic": "Orders", "body": b"body", "message_keys": "", "tags": "", "properties": "{}"}
        with closing(self.connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            for statement in first.create("BLOB"):
                connection.execute(statement)
            connection.execute("CREATE TABLE effects (consumer_group TEXT, message_id TEXT)")
            times = {"next_resend_at_ms": 0, "created_at_ms": 1_000}
            for number in range(CONFIRMED + OPEN):
                name = f"done{number}" if number < CONFIRMED else f"open{number}"
                connection.execute(rendered(first.STUB, SQLITE.style), {**content, **times, "message_id": name})
                if number < CONFIRMED:
                    connection.execute(rendered(first.CONFIRM, SQLITE.style), {"message_id": name})
                    place = {"topic": "Orders", "broker": "broker-a", "queue_id": 0, "queue_offset": number}
                    named = {"consumer_group": "packing", "message_id": name, "received_at_ms": 1_000}
                    connection.execute(rendered(first.LOG, SQLITE.style), {**named, **place})
            connection.commit()


async def test_what_was_open_reaches_its_group_once_and_what_was_confirmed_never_again(tmp_path: Path) -> None:
    stubs = await asyncio.to_thread(Upgraded, tmp_path / "shop.db")
    async with running_cluster(tmp_path / "brokers") as cluster:
        limits = ResendRules(backoff_s=600.0, measure_s=0.0)
        settings = ResendServiceSettings(cluster.nameserver, every_s=0.1, people_every_s=0.1, resends=limits)
        services = [ResendService(stubs.database, SAY, (), settings, SystemClock()) for _ in range(2)]
        consumer = Consumer(
            "packing", nameserver=cluster.nameserver, subscription={"Orders": "*"},
            listener=stubs.listener("packing"), settings=ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=1.0),
        )  # fmt: skip
        async with consumer:
            for service in services:
                await service.start()
            try:
                # On tables of version 1 they do nothing but say so.
                await until(lambda: all(not service._ready()[0] for service in services))
                done = await asyncio.to_thread(run, "guarantee", "create", "--database", stubs.address)
                assert (done.code, f"{CONFIRMED + OPEN} messages" in done.out) == (0, True), done
                await until(lambda: stubs.states() == {"confirmed": CONFIRMED + OPEN})
                await until(lambda: all(service._ready()[0] for service in services))
            finally:
                for service in services:
                    await service.stop()
        assert stubs.ask("SELECT MAX(resends) FROM guarantee_delivery WHERE message_id LIKE 'open%'") == [(1,)]
        assert stubs.ask("SELECT MAX(resends) FROM guarantee_delivery WHERE message_id LIKE 'done%'") == [(0,)]
    assert len(stubs.effects()) == len(set(stubs.effects())) == OPEN
