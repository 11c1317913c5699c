"""Changes that an in-sync slave has to have before they are answered, by every request that makes one.

    python -m simulation.answerswait        for each of CHANGES a line: `NAME: waited`, or what happened instead;
                                            and `HANDOVER: kept`

The disk of the slave hangs for a second, so that it acknowledges nothing that has to be durable there.  A request that
is answered meanwhile could be lost with the master.  A planned change keeps also what does not wait: the last offset
that a client was told is committed before the next master leads.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable

from gantry.leaves.frames import Command
from gantry.replication import haapi
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode
from simulation.clients import Client
from simulation.groupmember import GroupMember
from simulation.groupworld import GroupWorld, Shape
from simulation.routes import Always
from simulation.world import World
from testkit.brokerplay import send

HANDOVER = "an offset before a planned change"
_COMMITS = 400  # more than there is time for
_HANGS_S = 1.0  # less than a group waits for a silent slave
_GROUP = {"consumerGroup": "known", "topic": "there", "queueId": "0"}
_QUEUE = {"brokerName": "", "topic": "there", "queueId": 0}


def topic(name: str) -> Command:
    fields = {"topic": name, "readQueueNums": "2", "writeQueueNums": "2", "perm": "6", "defaultTopic": "TBW102"}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=fields)


def group(name: str) -> Command:
    return Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=bodies.dumps({"groupName": name}))


def locks(code: RequestCode, client: str) -> Command:
    asked = {"clientId": client, "consumerGroup": "known", "mqSet": [_QUEUE], "onlyThisBroker": False}
    return Command(code, body=bodies.dumps(asked))


def commit(queue_id: str, offset: int = 0) -> Command:
    fields = _GROUP | {"queueId": queue_id, "commitOffset": str(offset)}
    return Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=fields)


BEFORE = (topic("there"), topic("unused"), group("known"), group("other"), commit("0"))
CHANGES: dict[str, Callable[[], Command]] = {
    "a topic is created": lambda: topic("made"),
    "a topic is deleted": lambda: Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": "unused"}),
    "a group is created": lambda: group("made"),
    "a group is deleted": lambda: Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext={"groupName": "other"}),
    "a group's first offset in a queue": lambda: commit("1"),
    "a queue is locked": lambda: locks(RequestCode.LOCK_BATCH_MQ, "one"),
    "offsets are reset": lambda: Command(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        ext={"topic": "there", "group": "known", "timestamp": "0", "isForce": "true", "offset": "0", "queueId": "0"},
    ),
    "offsets are copied": lambda: Command(
        RequestCode.CLONE_GROUP_OFFSET,
        ext={"srcGroup": "known", "destGroup": "other", "topic": "there", "offline": "true"},
    ),
    "a group pops a topic": lambda: Command(
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        body=bodies.dumps({"topic": "there", "consumerGroup": "known", "mode": "POP", "popShareQueueNum": 0}),
    ),
}


def make_group(world: World) -> tuple[GroupWorld, GroupMember, GroupMember]:
    """Two members that are both in sync, the one that leads first."""
    group = GroupWorld(world, Shape(2, True, 2, True, 1, False))
    group.start()
    world.run(30.0, lambda: (record := group.service.record) is not None and len(record.in_sync) == 2)
    world.run(world.now + 2.0)
    leader = group.leader()
    assert leader is not None
    (slave,) = [member for member in group.members if member is not leader]
    return group, leader, slave


def told(change: Callable[[], Command]) -> str:
    """What happened to this change: "waited" when it was answered after the slave had it, and not before."""
    world = World(1)
    group, leader, slave = make_group(world)
    client = Client(world, group.network, "10.0.1.1", Always(leader.address))
    answers: list[Command | None] = []

    async def ask(*commands: Command) -> None:
        answers.extend([await client.ask(command, 10.0) for command in commands])

    client.run(lambda: ask(*BEFORE))
    world.run(world.now + 5.0, lambda: len(answers) == len(BEFORE))
    if [one.code for one in answers if one is not None] != len(BEFORE) * [ResponseCode.SUCCESS]:
        return f"what is there before could not be made: {answers}"
    answers.clear()
    slave.hang_disk()
    client.run(lambda: ask(change()))
    if world.run(world.now + _HANGS_S, lambda: bool(answers)):
        return f"answered before the slave had it: {answers[0]}"
    slave.calm()
    world.run(world.now + 5.0, lambda: bool(answers))
    world.end()
    if not answers or answers[0] is None or answers[0].code != ResponseCode.SUCCESS:
        return f"not carried out: {answers}"
    return world.problems[0] if world.problems else "waited"


def kept_by_a_handover() -> str:
    """What the next master knows of a group that commits all the time: "kept" when it is what was answered last."""
    world = World(1)
    group, leader, slave = make_group(world)
    client = Client(world, group.network, "10.0.1.1", Always(leader.address))
    committed: list[int] = []

    async def commit_more() -> None:
        for command in BEFORE:
            await client.ask(command)
        for _ in range(_COMMITS):
            await client.ask(send("there", b"", 0))
        for number in range(1, _COMMITS):
            answer = await client.ask(commit("0", number), 1.0)
            if answer is None or answer.code != ResponseCode.SUCCESS:
                return
            committed.append(number)

    client.run(commit_more)
    world.run(world.now + 30.0, lambda: len(committed) > 20)
    leader.order(haapi.HANDOVER, target=slave.ordinal, deadlineMs=5000)
    world.run(world.now + 10.0, lambda: group.leader() is slave and slave.is_serving)
    world.run(world.now + 1.0)
    parts = slave.broker.parts if slave.broker is not None else None
    if parts is None or group.leader() is not slave or not committed:
        return f"no handover, after {len(committed)} commits"
    found = parts.offsets.query("known", "there", 0)
    world.end()
    return "kept" if found >= committed[-1] else f"{committed[-1]} was committed, and the next master says {found}"


if __name__ == "__main__":
    # Of coroutines of dead processes, as in `simulation.run`.
    sys.unraisablehook = lambda unraisable: None
    warnings.simplefilter("ignore", RuntimeWarning)
    logging.basicConfig(level=logging.CRITICAL + 1)
    for name, change in CHANGES.items():
        print(f"{name}: {told(change)}")
    print(f"{HANDOVER}: {kept_by_a_handover()}")
