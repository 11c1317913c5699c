"""A broker with a hundred times the usual state, and for each request code the largest input that it allows.

The state goes straight into the tables of a running broker; requests go through its router, from a connection that
keeps what is written to it.  `holds` and `calls` measure the steps of the loop meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gantry.broker.parts import Parts
from gantry.broker.requests.bounds import FIELDS_CHARS_MAX
from gantry.leaves import frames, properties
from gantry.leaves.frames import Command
from gantry.metadata.clients import Consumption, GroupClient
from gantry.model.subscription import GroupConfig, Subscription
from gantry.model.topic import TopicConfig
from gantry.wire.codes import RequestCode
from testkit.fake_connection import FakeConnection
from testkit.requests import request

PATIENCE_S = 60.0
VERSION = 479
WIDE = "wide"  # the group that reads everything
KEY = "hot"  # the key of every message
_RUN = 500
_HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much there is."""

    topics: int = 10_000
    queues: int = 8
    groups: int = 1_000
    members: int = 10_000


def topic(number: int) -> str:
    """The name of a topic."""
    return f"topic-with-a-name-of-usual-length-{number}"


async def fill(parts: Parts, scale: Scale) -> None:
    """Make the state."""
    for number in range(scale.topics):
        parts.topics.put(TopicConfig(topic(number), read_queues=scale.queues, write_queues=scale.queues))
        if number % _RUN == 0:
            await asyncio.sleep(0)
    for number in range(scale.groups):
        parts.groups.put(GroupConfig(f"group-{number}"))
    parts.groups.put(GroupConfig(WIDE))
    queues = [(topic(number), queue_id) for number in range(scale.topics) for queue_id in range(scale.queues)]
    for first in range(0, len(queues), _RUN):
        parts.store.append([_send(*queue) for queue in queues[first : first + _RUN]])
        await asyncio.sleep(0)
    for number, (name, queue_id) in enumerate(queues):
        parts.offsets.commit(WIDE, name, queue_id, 1)
        parts.offsets.commit(f"group-{number // scale.queues % scale.groups}", name, queue_id, 1)
    _members(parts, scale)


def _send(name: str, queue_id: int) -> frames.Send:
    packed = properties.pack({"UNIQ_KEY": f"{name}-{queue_id}", "KEYS": KEY})
    traits, unique_key, found_keys, tags_code = properties.scan(packed)
    return frames.Send(
        topic=name, queue_id=queue_id, body=b"x" * 100, properties=packed, traits=traits, unique_key=unique_key,
        keys=found_keys, tags_code=tags_code, born_host=_HOST,
    )  # fmt: skip


def _members(parts: Parts, scale: Scale) -> None:
    consumption = Consumption("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")
    now = parts.clock.monotonic()
    for number in range(scale.members):
        one: Any = FakeConnection(f"10.0.{number // 250}.{number % 250}:4711")
        member = GroupClient(f"10.0.{number // 250}.{number % 250}@{number}#a-usual-instance-name", 0, VERSION, now)
        refusals = [
            parts.clients.register_consumer(one, "crowd", member, consumption, [Subscription(topic(0))]),
            parts.clients.register_producer(one, "producers", member),
        ]
        assert refusals == [None, None], refusals


async def ask(parts: Parts, command: Command) -> list[Command]:
    """The replies to a request, over a connection of its own; none when it is taken without one."""
    connection: Any = FakeConnection()
    async with asyncio.timeout(PATIENCE_S):
        # In a step of its own, as the socket would bring it.
        came = asyncio.Event()
        asyncio.get_running_loop().call_soon(_bring, parts, connection, command, came)
        await came.wait()
        await parts.router.answered()
    return connection.take()


def _bring(parts: Parts, connection: Any, command: Command, came: asyncio.Event) -> None:
    parts.router.on_requests(connection, [command])
    came.set()


@contextmanager
def holds() -> Iterator[list[float]]:
    """How long steps of any loop took, in seconds of this thread's CPU, so that a busy machine does not count."""
    found = [0.0]
    handles: Any = asyncio.Handle
    run: Callable[[asyncio.Handle], None] = handles._run

    def timed(handle: asyncio.Handle) -> None:
        begun = time.thread_time()
        run(handle)
        took = time.thread_time() - begun
        if took > found[-1]:
            found.append(took)

    handles._run = timed
    try:
        yield found
    finally:
        handles._run = run


@contextmanager
def calls() -> Iterator[list[int]]:
    """How many calls steps of any loop made, functions in C among them: what a busy machine does not change."""
    found = [0]
    handles: Any = asyncio.Handle
    run: Callable[[asyncio.Handle], None] = handles._run

    def counted(handle: asyncio.Handle) -> None:
        count = 0

        def note(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(note)
        try:
            run(handle)
        finally:
            sys.setprofile(None)
        found[0] = max(found[0], count)

    handles._run = counted
    try:
        yield found
    finally:
        handles._run = run


def every(scale: Scale, codes: Iterable[int]) -> dict[int, Command]:
    """For each of these codes the largest request there is; for those that look at one thing, fields that are long."""
    known: dict[int, Command] = {int(code): command for code, command in largest(scale).items()}
    long = "x" * (FIELDS_CHARS_MAX // 8)
    fields = {"topic": long, "group": long, "consumerGroup": long, "offset": 1, "queueId": 0, "id": long}
    return {code: known.get(code) or request(code, b"x" * 4096, **fields) for code in codes}


def largest(scale: Scale) -> dict[RequestCode, Command]:
    """For each code that walks or copies, the request that makes it do most."""
    code = RequestCode
    queues = [
        {"brokerName": "", "queueId": queue_id, "topic": topic(number)}
        for number in range(scale.topics)
        for queue_id in range(scale.queues)
    ][:5000]
    locks: dict[str, object] = {"clientId": "me", "consumerGroup": WIDE, "mqSet": queues}
    subscriptions = [{"topic": topic(number), "subString": "a || b"} for number in range(1500)]
    beat: dict[str, object] = {
        "clientID": "me",
        "consumerDataSet": [{"groupName": WIDE, "subscriptionDataSet": subscriptions}],
        "producerDataSet": [{"groupName": f"p{number}"} for number in range(400)],
    }
    found = [
        request(code.QUERY_MESSAGE, topic=topic(0), key=KEY, maxNum=64, beginTimestamp=0, endTimestamp=(1 << 63) - 1),
        request(code.QUERY_CONSUMER_OFFSET, consumerGroup=WIDE, topic=topic(0), queueId=0),
        request(code.GET_ALL_TOPIC_CONFIG),
        request(code.GET_BROKER_CONFIG),
        request(code.GET_BROKER_RUNTIME_INFO),
        request(code.SEARCH_OFFSET_BY_TIMESTAMP, topic=topic(0), queueId=0, timestamp=1),
        request(code.HEART_BEAT, beat),
        request(code.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="crowd"),
        request(code.LOCK_BATCH_MQ, locks),
        request(code.UNLOCK_BATCH_MQ, locks),
        request(code.GET_ALL_CONSUMER_OFFSET),
        request(code.GET_ALL_DELAY_OFFSET),
        request(code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        request(code.GET_TOPIC_STATS_INFO, topic=topic(0)),
        request(code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="crowd"),
        request(code.GET_PRODUCER_CONNECTION_LIST, producerGroup="producers"),
        request(code.GET_CONSUME_STATS, consumerGroup=WIDE),
        request(code.QUERY_TOPIC_CONSUME_BY_WHO, topic=topic(0)),
        request(code.QUERY_CONSUME_TIME_SPAN, topic=topic(0), group=WIDE),
        request(code.QUERY_CORRECTION_OFFSET, compareGroup=WIDE, topic=topic(0)),
        request(code.CLONE_GROUP_OFFSET, srcGroup=WIDE, destGroup="group-1", topic="", offline="true"),
        request(code.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey=topic(0)),
        request(code.GET_BROKER_CONSUME_STATS, isOrder="false"),
        request(code.GET_ALL_PRODUCER_INFO),
        request(code.QUERY_TOPICS_BY_CONSUMER, group=WIDE),
        request(code.QUERY_SUBSCRIPTION_BY_CONSUMER, group="crowd", topic=topic(0)),
        request(code.LIST_LAG, group="", topic=""),
        request(code.LIST_TRANSACTIONS, limit=1000),
        request(code.LIST_SINKS),
        request(code.LIST_DELAYED, limit=1000),
        request(code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic=topic(0), group="crowd", clientAddr="nobody"),
        request(code.INVOKE_BROKER_TO_RESET_OFFSET, topic=topic(0), group=WIDE, timestamp=1, isForce="true"),
        request(
            code.UPDATE_AND_CREATE_TOPIC, topic="new", defaultTopic="TBW102", readQueueNums=8, writeQueueNums=8,
            perm=6, topicFilterType="SINGLE_TAG", topicSysFlag=0, order="false",
        ),
        request(code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": "new"}),
        request(code.DELETE_SUBSCRIPTIONGROUP, groupName="group-2", cleanOffset="true"),
        request(code.DELETE_TOPIC_IN_BROKER, topic=topic(1)),
        request(code.CLEAN_UNUSED_TOPIC),
        request(code.CLEAN_EXPIRED_CONSUMEQUEUE),
        request(code.UNREGISTER_CLIENT, clientID="me", consumerGroup="crowd", producerGroup="producers"),
    ]  # fmt: skip
    return {RequestCode(one.code): one for one in found}
