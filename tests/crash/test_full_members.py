"""A member of a group starts on a disk without any room: what it has to write first takes that of the reserve."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gantry.broker.broker import Broker
from gantry.broker.machine import Machine
from gantry.store import filenames
from gantry.store.background import InlineBackground
from testkit.brokerplay import configuration, peer, send
from testkit.simdisk import SimDisk


@pytest.mark.parametrize("ending", ["a stop in order", "a crash"])
def test_a_member_on_a_disk_without_any_room_starts_in_that_of_the_reserve(ending: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret for tests\n")
    config = configuration(Path("/broker"), store__flush="SYNC_FLUSH", replication__secret_file=str(secret))
    codes: list[int] = []

    async def live(disk: SimDisk) -> None:
        broker = Broker(config, machine=Machine(disk=disk, background=lambda disk: InlineBackground()))
        try:
            await broker.start()
            async with peer(broker) as client:
                codes.append((await client.call(send("orders", b"a"))).code)
        finally:
            await broker.stop()

    disk = SimDisk()
    asyncio.run(live(disk))
    if ending == "a crash":
        disk.open(filenames.abort(config.store.root), create=True).close()
    disk.sync_all()
    full = disk.crash()
    full.quota_bytes = full._used_bytes()
    asyncio.run(live(full))
    assert codes == [0, 0], "the second message is stored in the segment whose room was set aside"
