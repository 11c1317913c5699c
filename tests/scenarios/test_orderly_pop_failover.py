"""Orderly pops and modes of groups across a change of the master."""

from __future__ import annotations

import json
from pathlib import Path

from gantry.leaves.frames import Command
from gantry.wire.bodies import dumps
from gantry.wire.codes import RequestCode
from scenarios.test_failover_topics import done, lost
from testkit.brokerplay import peer, send
from testkit.failoverplay import FailoverPlay, playing
from testkit.popplay import GROUP, TOPIC, Popped, ack_request, change_request, pop_request, popped
from testkit.turning import until


async def taken(group: FailoverPlay, count: int = 32) -> list[Popped]:
    """What a pop in order gives at the master of now."""
    async with peer(group.broker(group.master)) as client:
        reply = await client.call(pop_request(count, 600_000, order="true"))
    assert reply.code in (0, 210), reply.remark
    return popped(reply) if reply.code == 0 else []


async def test_the_next_master_knows_the_lock_the_counts_and_what_was_acknowledged(tmp_path: Path) -> None:
    async with playing(tmp_path, handover_s=0) as group:
        await done(group, *[send(TOPIC, b"m%d" % number) for number in range(5)])
        first = await taken(group, 3)
        assert [one.body for one in first] == [b"m0", b"m1", b"m2"]
        await done(group, ack_request(first[0]), ack_request(first[2]))
        await lost(group)
        assert await taken(group) == []
        (answer,) = await done(group, change_request(first[1], 0))
        assert answer["gantryVerdict"] == "open"
        again = await taken(group, 1)
        assert [one.body for one in again] == [b"m1"]
        assert await taken(group) == []
        verdicts = await done(group, ack_request(first[1]), *map(ack_request, again))
        assert [one["gantryVerdict"] for one in verdicts] == ["stale", "open"]
        rest = [b"m3", b"m4"]
        while rest:  # a pop reads one part of a queue, of which the next master has several
            found = await taken(group)
            assert [one.body for one in found] == rest[: len(found)] and found
            await done(group, *map(ack_request, found))
            del rest[: len(found)]


async def test_the_next_master_knows_which_groups_pop(tmp_path: Path) -> None:
    mode = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0}
    question = {"topic": TOPIC, "consumerGroup": GROUP, "clientId": "c", "strategyName": "AVG"}
    question |= {"messageModel": "BROADCASTING"}
    async with playing(tmp_path, handover_s=0) as group:
        made = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dumps({"groupName": GROUP}))
        await done(group, made, send(TOPIC, b"m0"))
        await done(group, Command(RequestCode.SET_MESSAGE_REQUEST_MODE, body=dumps(mode)))
        await lost(group)
        modes: set[str] = set()

        async def ask() -> None:
            async with peer(group.broker(group.master)) as client:
                reply = await client.call(Command(RequestCode.QUERY_ASSIGNMENT, body=dumps(question)))
            modes.update(row["mode"] for row in json.loads(reply.body).get("messageQueueAssignments", ()))

        await ask()
        while not modes:  # the name server has not heard of the new master yet
            await until(group.takes_writes)
            await ask()
        assert modes == {"POP"}
