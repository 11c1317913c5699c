"""A group's master goes, and another one leads: with real brokers, a real register and a real coordinator."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gantry.wire.codes import ResponseCode
from testkit.brokerplay import bodies, peer, pull, send
from testkit.failoverplay import FailoverPlay, play
from testkit.turning import until


async def sent(group: FailoverPlay, *texts: bytes) -> None:
    """Messages that the master acknowledges."""
    async with peer(group.broker(group.master)) as client:
        for text in texts:
            assert (await client.call(send("T", text))).code == ResponseCode.SUCCESS


async def read(group: FailoverPlay) -> list[bytes]:
    """What the master shows of queue 0."""
    async with peer(group.broker(group.master)) as client:
        found: list[bytes] = []
        while True:
            more = bodies(await client.call(pull("T", len(found))))
            if not more:
                return found
            found += more


def test_a_new_group_elects_a_master_that_takes_messages(tmp_path: Path) -> None:
    async def story(group: FailoverPlay) -> None:
        await sent(group, b"one", b"two")
        assert await read(group) == [b"one", b"two"]

    play(tmp_path, story)


def logs(group: FailoverPlay) -> list[tuple[int, int]]:
    """What each member that runs has, and has confirmed."""
    stores = [process.broker.parts.store for process in group.processes if process.broker and process.broker.parts]
    return [(store.written.offset, store.confirmed.offset) for store in stores]


def are_equal(group: FailoverPlay) -> bool:
    found = logs(group)
    return len(found) == len(group.processes) and len(set(found)) == 1 and found[0][0] == found[0][1]


def test_when_the_master_is_gone_another_leads_with_everything_and_the_old_one_follows_it(tmp_path: Path) -> None:
    async def story(group: FailoverPlay) -> None:
        first = group.master
        epoch = (await group.record()).epoch
        await sent(group, b"one", b"two")
        await group.processes[first].stop()
        await until(group.takes_writes)
        assert group.master != first and (await group.record()).epoch == epoch + 1
        await sent(group, b"three")
        assert await read(group) == [b"one", b"two", b"three"]
        group.processes[first].start()
        await until(lambda: are_equal(group))
        record = await group.record()
        assert record.holder is not None and record.holder.member.ordinal == group.master
        await until(lambda: group.processes[first].lives >= 2 and not group.processes[first].is_master)

    play(tmp_path, story)


def test_a_master_that_restarts_before_it_is_suspected_goes_on_in_an_epoch_of_its_own(tmp_path: Path) -> None:
    async def story(group: FailoverPlay) -> None:
        first, before = group.master, await group.record()
        await sent(group, b"one")
        await group.processes[first].stop()
        group.processes[first].start()
        await until(group.takes_writes)
        after = await group.record()
        assert group.master == first and after.epoch == before.epoch + 1 and after.in_sync == before.in_sync
        await sent(group, b"two")
        assert await read(group) == [b"one", b"two"]

    play(tmp_path, story)


def test_a_slave_that_is_gone_leaves_the_set_in_the_register_and_comes_back_into_it(tmp_path: Path) -> None:
    async def story(group: FailoverPlay) -> None:
        slave = (group.master + 1) % 3
        await sent(group, b"zero")
        await until(lambda: are_equal(group))
        await group.processes[slave].stop()
        await sent(group, b"one")
        assert slave not in {member.ordinal for member in (await group.record()).in_sync}
        group.processes[slave].start()
        await until(lambda: are_equal(group))
        parts = group.broker(group.master).parts
        assert parts is not None
        await sent(group, b"two")
        for _ in range(600):
            if slave in {member.ordinal for member in (await group.record()).in_sync}:
                break
            await asyncio.sleep(0.05)
        assert slave in {member.ordinal for member in (await group.record()).in_sync}
        assert (await group.record()).epoch == parts.group.mastery.epoch  # type: ignore[union-attr]

    play(tmp_path, story)
