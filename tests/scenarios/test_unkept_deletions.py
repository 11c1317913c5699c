"""A deletion that its master carried out and the group never had is undone on anyone who knows of it: nothing that was
acknowledged is missing when that member leads again.  One that the group has stays.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gantry.broker.broker import Broker
from gantry.broker.parts import Parts
from gantry.errors import StoreError
from gantry.leaves.frames import Command
from gantry.store import reviving
from gantry.store.generations import TopicGeneration
from gantry.wire.codes import RequestCode, ResponseCode
from scenarios.test_group import Group, grouped
from testkit.brokerplay import bodies, peer, pull, send
from testkit.requests import request
from testkit.turning import until

ALONE = {"replication__min_in_sync": 1}
HASTY = {"messages__ack_wait_s": 1}
DELETE = request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
PLACE = {"consumerGroup": "readers", "topic": "orders", "queueId": 0}


def parts_of(broker: Broker) -> Parts:
    assert broker.parts is not None
    return broker.parts


def life_on(broker: Broker) -> TopicGeneration | None:
    return parts_of(broker).store.generations.life("orders")


async def asked(broker: Broker, *commands: Command) -> list[Command]:
    async with peer(broker) as client:
        return [await client.call(command) for command in commands]


async def stored(broker: Broker, *messages: bytes) -> None:
    answers = await asked(broker, *(send("orders", body) for body in messages))
    assert [answer.code for answer in answers] == [0] * len(messages), answers


async def are_level(group: Group, *members: int) -> None:
    await until(lambda: len({group.marks(member) for member in members}) == 1)


async def promoted(group: Group, member: int) -> Broker:
    broker = await group.start(member, role="SYNC_MASTER", **ALONE)
    await until(lambda: parts_of(broker).activity.is_on)
    return broker


async def followed_again(group: Group, member: int, new_id: int, master: Broker, count: int = 2) -> Broker:
    """The member follows, as often as it has to start again for that, until the set has so many."""
    broker = await group.start(member, role="SLAVE", id=new_id)
    in_sync = parts_of(master).group.tracker  # type: ignore[union-attr]
    await until(lambda: broker.starts_again or len(in_sync.in_sync) == count)
    if broker.starts_again:
        await group.stop(member)
        broker = await group.start(member, role="SLAVE", id=new_id)
        await until(lambda: len(in_sync.in_sync) == count)
        assert not broker.starts_again, "once is enough"
    return broker


async def deleted_on_one_only(group: Group) -> None:
    """Three messages that were acknowledged, and a deletion that only the former master carried out."""
    await group.start(0, **HASTY)
    await group.start(1)
    await group.until_joined()
    await stored(group.brokers[0], b"m0", b"m1", b"m2")
    commit = request(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=2, **PLACE)
    answers = await asked(group.brokers[0], pull("orders", 0), commit)
    assert [answer.code for answer in answers] == [0, 0]
    await are_level(group, 0, 1)
    offsets = parts_of(group.brokers[1]).offsets
    await until(lambda: offsets.query("readers", "orders", 0) == 2)
    await group.stop(1)
    (answer,) = await asked(group.brokers[0], DELETE)
    assert answer.code == ResponseCode.SYSTEM_ERROR, "the outcome is open"
    await group.stop(0)


async def assert_leads_with(group: Group, member: int, wanted: list[bytes]) -> Broker:
    """Alone, and all of it is there."""
    for each in sorted(group.brokers):
        await group.stop(each)
    broker = await promoted(group, member)
    (answer,) = await asked(broker, pull("orders", 0))
    assert answer.code == 0 and bodies(answer) == wanted, answer
    return broker


async def test_a_deletion_by_a_master_that_was_cut_off_is_undone_when_it_follows_the_next_one(tmp_path: Path) -> None:
    async with grouped(tmp_path) as group:
        await deleted_on_one_only(group)
        new = await promoted(group, 1)
        query = request(RequestCode.QUERY_CONSUMER_OFFSET, **PLACE)
        (before,) = await asked(new, query)
        old = await followed_again(group, 0, 1, new)
        await stored(new, b"m3")
        await are_level(group, 0, 1)
        assert life_on(old) is None
        assert parts_of(old).store.queue_range("orders", 0) == parts_of(new).store.queue_range("orders", 0) == (0, 4)
        leader = await assert_leads_with(group, 0, [b"m0", b"m1", b"m2", b"m3"])
        (after,) = await asked(leader, query)
        assert (after.code, after.ext) == (before.code, before.ext) and after.ext["offset"] == "2"


@pytest.mark.slow
async def test_it_is_undone_also_when_the_start_that_does_it_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with grouped(tmp_path) as group:
        await deleted_on_one_only(group)
        new = await promoted(group, 1)
        old = await group.start(0, role="SLAVE", id=1)
        await until(lambda: old.starts_again)
        await group.stop(0)
        with monkeypatch.context() as patched:

            def dies(*_: object) -> None:
                raise StoreError("the queues are built, and the file is still there")

            patched.setattr(reviving, "done", dies)
            with pytest.raises(StoreError, match="still there"):
                await group.start(0, role="SLAVE", id=1)
            await group.stop(0)
        await followed_again(group, 0, 1, new)
        await assert_leads_with(group, 0, [b"m0", b"m1", b"m2"])


@pytest.mark.slow
async def test_it_is_undone_also_when_this_member_leads_before_it_could_follow(tmp_path: Path) -> None:
    async with grouped(tmp_path) as group:
        await deleted_on_one_only(group)
        await promoted(group, 1)
        old = await group.start(0, role="SLAVE", id=1)
        await until(lambda: old.starts_again)
        leader = await assert_leads_with(group, 0, [b"m0", b"m1", b"m2"])
        assert life_on(leader) is None


@pytest.mark.slow
async def test_a_slave_that_heard_of_it_undoes_it_when_one_leads_that_did_not(tmp_path: Path) -> None:
    async with grouped(tmp_path) as group:
        master = await group.start(0, replication__min_in_sync=3, **HASTY)
        await group.start(1)
        await group.start(2)
        await group.until_joined(3)
        await stored(master, b"m0", b"m1", b"m2")
        await are_level(group, 0, 1, 2)
        await group.stop(2)
        (answer,) = await asked(master, DELETE)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        heard = life_on(group.brokers[1])
        assert heard is not None and heard == life_on(master)
        await group.stop(0)
        await group.stop(1)
        new = await promoted(group, 2)
        await followed_again(group, 1, 1, new)
        await assert_leads_with(group, 1, [b"m0", b"m1", b"m2"])


@pytest.mark.slow
async def test_of_two_deletions_the_one_that_the_group_has_counts(tmp_path: Path) -> None:
    async with grouped(tmp_path) as group:
        master = await group.start(0, **HASTY)
        slave = await group.start(1)
        await group.until_joined()
        await stored(master, b"gone", b"gone too")
        assert (await asked(master, DELETE))[0].code == 0
        await stored(master, b"n0", b"n1")
        await are_level(group, 0, 1)
        kept = life_on(slave)
        await group.stop(1)
        assert (await asked(master, DELETE))[0].code == ResponseCode.SYSTEM_ERROR
        assert kept is not None and life_on(master) not in (kept, None)
        await group.stop(0)
        new = await promoted(group, 1)
        old = await followed_again(group, 0, 1, new)
        await stored(new, b"n2")
        await are_level(group, 0, 1)
        assert life_on(old) == life_on(new) == kept
        await assert_leads_with(group, 0, [b"n0", b"n1", b"n2"])


async def test_a_later_deletion_that_the_group_has_counts_and_nobody_starts_again_for_it(tmp_path: Path) -> None:
    async with grouped(tmp_path) as group:
        await deleted_on_one_only(group)
        new = await promoted(group, 1)
        await stored(new, b"m3")
        assert (await asked(new, DELETE))[0].code == 0
        await stored(new, b"n0")
        old = await group.start(0, role="SLAVE", id=1)
        await until(lambda: len(parts_of(new).group.tracker.in_sync) == 2)  # type: ignore[union-attr]
        await are_level(group, 0, 1)
        assert not old.starts_again and life_on(old) == life_on(new)
        await assert_leads_with(group, 0, [b"n0"])


async def test_a_deletion_that_the_group_has_stays_on_everybody_no_matter_who_leads(tmp_path: Path) -> None:
    async with grouped(tmp_path) as group:
        master = await group.start(0)
        slave = await group.start(1)
        await group.until_joined()
        await stored(master, b"gone", b"gone too")
        assert (await asked(master, DELETE))[0].code == 0
        await stored(master, b"n0")
        await are_level(group, 0, 1)
        lives = [life_on(master), life_on(slave)]
        for leads, follows in ((1, 0), (0, 1)):
            leader = await assert_leads_with(group, leads, [b"n0"])
            broker = await group.start(follows, role="SLAVE", id=1)
            await until(lambda: len(parts_of(leader).group.tracker.in_sync) == 2)  # type: ignore[union-attr]  # noqa: B023
            await are_level(group, 0, 1)
            assert not broker.starts_again
            lives += [life_on(leader), life_on(broker)]
        assert lives == lives[:1] * 6 and lives[0] is not None
