"""Popped messages across a change of the master: leases, acknowledgements and what was delivered again."""

from __future__ import annotations

from pathlib import Path

from gantry.model import names
from gantry.pop.records import revive_topic
from scenarios.test_failover_topics import done, handed_to, lost
from scenarios.test_group import grouped
from testkit.brokerplay import peer, send
from testkit.failoverplay import FailoverPlay, playing
from testkit.popplay import (
    GROUP,
    TOPIC,
    Popped,
    ack_request,
    batch_ack_request,
    change_request,
    changed,
    pop_request,
    popped,
)
from testkit.turning import until


async def taken(group: FailoverPlay, count: int = 32, invisible_ms: int = 600_000) -> list[Popped]:
    """What a pop gives at the master of now."""
    async with peer(group.broker(group.master)) as client:
        reply = await client.call(pop_request(count, invisible_ms))
    assert reply.code in (0, 210), reply.remark
    return popped(reply) if reply.code == 0 else []


async def verdicts(group: FailoverPlay, *messages: Popped) -> list[str]:
    """What the master of now says to acknowledgements."""
    return [answer["gantryVerdict"] for answer in await done(group, *map(ack_request, messages))]


async def test_the_next_masters_know_every_lease_and_every_acknowledgement(tmp_path: Path) -> None:
    async with playing(tmp_path, handover_s=0) as group:
        await done(group, *[send(TOPIC, b"m%d" % number) for number in range(6)])
        first = await taken(group, 4)
        assert [one.body for one in first] == [b"m0", b"m1", b"m2", b"m3"]
        assert await verdicts(group, first[0]) == ["open"]
        (answer,) = await done(group, change_request(first[1], 600_000))
        await handed_to(group, (group.master + 1) % 3)
        newer = changed(first[1], type("Reply", (), {"ext": answer})())
        assert await verdicts(group, first[0], first[1], first[2]) == ["done", "stale", "open"]
        rest = await taken(group)
        assert [one.body for one in rest] == [b"m4", b"m5"]
        await lost(group)
        assert await verdicts(group, first[2], newer, first[3], *rest) == ["done", "open", "open", "open", "open"]
        assert await taken(group) == []


async def test_what_was_acknowledged_after_its_second_delivery_does_not_come_from_the_next_master(
    tmp_path: Path,
) -> None:
    async with playing(tmp_path, handover_s=0) as group:
        await done(group, *[send(TOPIC, b"m%d" % number) for number in range(4)])
        assert len(await taken(group, 4, 100)) == 4
        again: list[Popped] = []
        while len(again) < 4:  # their leases end
            await until(group.takes_writes)
            again += await taken(group)
        assert sorted(one.body for one in again) == [b"m0", b"m1", b"m2", b"m3"]
        async with peer(group.broker(group.master)) as client:
            assert not (await client.call(batch_ack_request(again))).body
        await lost(group)
        assert await taken(group) == []


async def test_slaves_get_the_offset_of_ended_leases_behind_the_offsets_that_these_moved(tmp_path: Path) -> None:
    async with grouped(tmp_path) as group:
        broker = await group.start(0)
        assert broker.parts is not None
        offsets, role = broker.parts.offsets, group.tracker()
        topic = revive_topic(broker.parts.live.current.cluster)
        key = f"{topic}@{names.REVIVE_GROUP}"

        def move(revived: int, *groups: str) -> None:
            offsets.commit(names.REVIVE_GROUP, topic, 0, revived)
            for name in groups:
                offsets.commit(name, TOPIC, 0, revived)

        def told(after: int) -> list[str]:
            changes = [change for _, batch in role.feed.changes(after) for change in batch]
            return [name for table, name, _ in changes if table == "offset"]  # type: ignore[misc]

        before = role.asked
        move(1, "a", "b")
        middle = role.asked
        move(2, "a")
        move(3, "c")
        role.number_touched()
        offsets.commit("b", TOPIC, 0, 4)
        offsets.commit(GROUP, TOPIC, 0, 4)  # gathered only
        for after, expected in ((before, {"a", "b", "c", GROUP}), (middle, {"a", "b", "c", GROUP}), (0, set())):
            found = told(after)
            assert found[-1] == key and found.count(key) == 1
            assert expected <= {name.partition("@")[2] for name in found}


async def test_the_offset_of_ended_leases_never_goes_before_offsets_that_moved_while_others_are_sent(
    tmp_path: Path,
) -> None:
    async with grouped(tmp_path) as group:
        broker = await group.start(0)
        assert broker.parts is not None
        offsets, role = broker.parts.offsets, group.tracker()
        topic = revive_topic(broker.parts.live.current.cluster)
        before = role.asked

        def move(offset: int) -> None:
            offsets.commit(names.REVIVE_GROUP, topic, 0, offset)
            for number in range(600):
                offsets.commit(f"g{number}", TOPIC, 0, offset)

        move(1)
        role.number_touched()
        batches = role.feed.changes(before)
        next(batches)
        move(2)
        told = [change for _, batch in batches for change in batch if change[0] == "offset"]  # type: ignore[index]
        assert told and all(change[1] != f"{topic}@{names.REVIVE_GROUP}" for change in told)  # type: ignore[index]
