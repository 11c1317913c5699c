"""What each request and each periodic job costs when the tables are large: declared for all, measured for some.

FLAT     costs the same whatever the tables hold
SLICED   goes over a table and gives way after a few entries of it
ASKED    costs what the request itself names, which has a limit (`broker.requests.bounds`)
WHOLE    goes over a whole table in one piece: named, so that nobody has to find it; the text says what bounds it

A request or a job without an entry fails a test.  Costs are counted in lines of Python, never in time.  The sizes are
small here; GROWTH_FACTOR=10 multiplies them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from gantry.broker import periodic
from gantry.broker.registration import RegistrationTask
from gantry.broker.registration_body import BrokerIdentity
from gantry.broker.requests import router
from gantry.clock import SystemClock
from gantry.consume.filterdata import ConsumerFilters
from gantry.consume.hold import HeldPulls
from gantry.consume.locks import QueueLocks
from gantry.leaves import frames
from gantry.metadata.clients import ConsumerGroup, Consumption
from gantry.metadata.offsets import Offsets
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.subscription import Subscription
from gantry.pop.assignment import Mode
from gantry.pop.modes import Modes
from gantry.store import statefile
from gantry.wire.codes import RequestCode
from gantry.wire.command import reply
from testkit.counting import instructions
from testkit.fake_connection import FakeConnection
from testkit.simclock import SimClock

FACTOR = int(os.environ.get("GROWTH_FACTOR", "1"))
SMALL, LARGE = 300 * FACTOR, 3000 * FACTOR
# Lines of Python in one step of what is sliced: 5 ms at some 100 ns a line.
STEP_LINES_MAX = 50_000


class Growth(NamedTuple):
    """How the cost of an entry grows, and why or by what it is bounded."""

    kind: str
    why: str = ""


FLAT, SLICED, ASKED = Growth("flat"), Growth("sliced"), Growth("asked")


def whole(why: str) -> Growth:
    """It goes over a whole table in one piece."""
    return Growth("whole", why)


REQUESTS: dict[RequestCode, Growth] = {
    RequestCode.SEND_MESSAGE: FLAT,
    RequestCode.PULL_MESSAGE: FLAT,
    RequestCode.QUERY_MESSAGE: SLICED,
    RequestCode.QUERY_CONSUMER_OFFSET: FLAT,
    RequestCode.UPDATE_CONSUMER_OFFSET: FLAT,
    RequestCode.UPDATE_AND_CREATE_TOPIC: FLAT,  # the file is joined and written by a job
    RequestCode.GET_ALL_TOPIC_CONFIG: SLICED,
    RequestCode.UPDATE_BROKER_CONFIG: ASKED,
    RequestCode.GET_BROKER_CONFIG: FLAT,
    RequestCode.GET_BROKER_RUNTIME_INFO: FLAT,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Growth("flat", "bisects: some 25 records of a queue, brought in first"),
    RequestCode.GET_MAX_OFFSET: FLAT,
    RequestCode.GET_MIN_OFFSET: FLAT,
    RequestCode.GET_EARLIEST_MSG_STORETIME: FLAT,
    RequestCode.VIEW_MESSAGE_BY_ID: FLAT,
    RequestCode.HEART_BEAT: ASKED,
    RequestCode.UNREGISTER_CLIENT: ASKED,
    RequestCode.CONSUMER_SEND_MSG_BACK: FLAT,
    RequestCode.END_TRANSACTION: SLICED,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: whole("members of one group, bounded by connections"),
    RequestCode.LOCK_BATCH_MQ: ASKED,
    RequestCode.UNLOCK_BATCH_MQ: ASKED,
    RequestCode.GET_ALL_CONSUMER_OFFSET: SLICED,
    RequestCode.GET_ALL_DELAY_OFFSET: FLAT,
    RequestCode.CHECK_CLIENT_CONFIG: ASKED,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: FLAT,  # the file is joined and written by a job
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SLICED,
    RequestCode.GET_TOPIC_STATS_INFO: SLICED,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: SLICED,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: SLICED,
    RequestCode.GET_CONSUME_STATS: SLICED,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: SLICED,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: whole("groups of one topic, and groups online"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: FLAT,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: FLAT,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: whole("members of one group"),
    RequestCode.QUERY_CONSUME_TIME_SPAN: SLICED,
    RequestCode.QUERY_CORRECTION_OFFSET: SLICED,
    RequestCode.CLONE_GROUP_OFFSET: SLICED,
    RequestCode.VIEW_BROKER_STATS_DATA: FLAT,
    RequestCode.GET_BROKER_CONSUME_STATS: SLICED,
    RequestCode.GET_ALL_PRODUCER_INFO: SLICED,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: whole("topics of one group"),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: FLAT,
    RequestCode.LIST_LAG: SLICED,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: whole("names of all readers, and marks: 100 000 at most"),
    RequestCode.DELETE_TOPIC_IN_BROKER: whole("queues of one topic, half a microsecond each, and marks; rare"),
    RequestCode.SEND_MESSAGE_V2: FLAT,
    RequestCode.SEND_BATCH_MESSAGE: ASKED,
    RequestCode.SEND_REPLY_MESSAGE: FLAT,
    RequestCode.SEND_REPLY_MESSAGE_V2: FLAT,
    RequestCode.GET_TOPIC_CONFIG: FLAT,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: FLAT,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: SLICED,
    RequestCode.LIST_TRANSACTIONS: whole("numbers of all open halves are listed; 100 000 at most by default"),
    RequestCode.SHOW_TRANSACTION: SLICED,
    RequestCode.SETTLE_TRANSACTION: SLICED,
    RequestCode.DECIDE_BATCH: ASKED,
    RequestCode.END_BATCH: SLICED,
    RequestCode.LIST_SINKS: ASKED,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: whole("all queues; an administrator's, and rare"),
    RequestCode.CLEAN_UNUSED_TOPIC: whole("all topics; an administrator's, and rare"),
    RequestCode.DELETE_EXPIRED_COMMITLOG: FLAT,
    RequestCode.SHOW_RETENTION: FLAT,
    RequestCode.LIST_DELAYED: SLICED,
    RequestCode.CANCEL_DELAYED: SLICED,
    RequestCode.RECALL_MESSAGE: SLICED,
    RequestCode.RETIME_DELAYED: SLICED,
    RequestCode.QUERY_ASSIGNMENT: whole("members and queues of one group and topic"),
    RequestCode.SET_MESSAGE_REQUEST_MODE: SLICED,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: SLICED,
    RequestCode.POP_MESSAGE: FLAT,
    RequestCode.PEEK_MESSAGE: FLAT,
    RequestCode.ACK_MESSAGE: FLAT,
    RequestCode.BATCH_ACK_MESSAGE: ASKED,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: FLAT,
    RequestCode.FORWARD_TO_DLQ: FLAT,
    RequestCode.NOTIFICATION: FLAT,
    RequestCode.POLLING_INFO: whole("filters of one place"),
    RequestCode.QUEUE_STATS: FLAT,
    RequestCode.KEEP_POP_OWNERS: ASKED,
    RequestCode.END_POP_OWNER: FLAT,
    RequestCode.LITE_PULL_MESSAGE: FLAT,
}
JOBS: dict[str, Growth] = {
    "store": SLICED,
    "late acks": FLAT,
    "held pulls": SLICED,
    "held pops": SLICED,
    "notices": whole("groups that changed in 0.1 s"),
    "save tables": SLICED,
    "save offsets": SLICED,
    "check back": SLICED,
    "transactions": SLICED,
    "decisions of sinks": SLICED,
    "delivery": SLICED,
    "revive": SLICED,
    "orderly pops": SLICED,
    "save orderly pops": SLICED,
    "idle orderly pops": SLICED,
    "leases": SLICED,
    "queues": SLICED,
    "delays": SLICED,
    "replication": FLAT,
    "replication secret": FLAT,
    "silent clients": whole("all connections: 20 000 at most"),
    "queue locks": SLICED,
    "full disk": FLAT,
    "stalled disk": FLAT,
    "rates": FLAT,
    "statistics": SLICED,
    "rates of groups": whole("groups in topics that pulled"),
    "loop lag": FLAT,
}


class Anything:
    """Has every attribute, and answers every call with one like itself."""

    def __getattr__(self, name: str) -> Any:
        return Anything()

    def __call__(self, *given: Any) -> Any:
        return Anything()


def test_each_request_says_how_its_cost_grows() -> None:
    assert set(router.table(Anything())) == set(REQUESTS)  # type: ignore[arg-type]


def test_each_periodic_job_says_how_its_cost_grows() -> None:
    parts, rest = Anything(), Anything()
    assert {job.name for job in periodic.table(parts, rest, rest)} == set(JOBS)  # type: ignore[arg-type]


@pytest.mark.parametrize("growth", [*REQUESTS.values(), *JOBS.values()])
def test_what_is_not_sliced_says_what_bounds_it(growth: Growth) -> None:
    assert growth.kind in ("flat", "sliced", "asked", "whole")
    assert growth.kind != "whole" or growth.why


class NoFile:
    """A file that takes everything."""

    def load(self) -> None:
        return None

    def save(self, table: object) -> None:
        return None

    save_now = save

    def retry(self) -> None:
        return None


def offsets_saving(size: int) -> tuple[Callable[[], object], Callable[[], Iterator[object]]]:
    offsets = Offsets(NoFile(), SimClock())  # type: ignore[arg-type]
    for number in range(size):
        offsets.commit(f"g{number % 10}", f"T{number // 10}", 0, 1)
    return lambda: offsets.commit("g1", "T1", 0, offsets.query("g1", "T1", 0) + 1), offsets.saving


def locks_saving(size: int) -> tuple[Callable[[], object], Callable[[], Iterator[object]]]:
    locks = QueueLocks(NoFile(), 0.0)  # type: ignore[arg-type]
    for number in range(size):
        locks.lock("g", "A", ("T", number), 0.0)
    lives = iter(range(1 << 30))
    return lambda: locks.lock("h", "A", ("U", next(lives)), 0.0), locks.saving


def filters_saving(size: int) -> tuple[Callable[[], object], Callable[[], Iterator[object]]]:
    filters = ConsumerFilters(NoFile(), SystemClock(), lambda cause, text: None)  # type: ignore[arg-type]
    versions = iter(range(1, 1 << 30))

    def beat(group: str, topics: int) -> None:
        wanted = [
            Subscription.from_json(
                {
                    "topic": f"T{number}",
                    "subString": "a > 1",
                    "expressionType": "SQL92",
                    "subVersion": next(versions),
                    "classFilterMode": False,
                    "tagsSet": [],
                    "codeSet": [],
                }
            )
            for number in range(topics)
        ]
        filters.heard(None, ConsumerGroup(group, Consumption("", "", "")), wanted)  # type: ignore[arg-type]

    for number in range(size // 10):
        beat(f"g{number}", 10)
    return lambda: beat("g1", 10), filters.saving


def modes_saving(size: int) -> tuple[Callable[[], object], Callable[[], Iterator[object]]]:
    modes, lives = Modes(NoFile()), iter(range(1 << 19))  # type: ignore[arg-type]
    for number in range(size):
        modes.put(f"T{number % 10}", f"g{number // 10}", Mode())
    return lambda: modes.put("T1", "g1", Mode(share_queues=next(lives) + 1)), modes.saving


@pytest.mark.parametrize("made", [offsets_saving, locks_saving, filters_saving, modes_saving])
def test_a_save_costs_what_has_changed_in_small_steps(
    made: Callable[[int], tuple[Callable[[], object], Callable[[], Iterator[object]]]],
) -> None:
    costs = []
    for size in (SMALL, LARGE):
        change, saving = made(size)
        first = steps_of(saving())
        assert max(first) < STEP_LINES_MAX, "also the first save, of everything"
        change()
        costs.append(sum(steps_of(saving())))
    assert costs[1] <= 1.5 * costs[0] + 500, costs


def steps_of(steps: Iterator[object]) -> list[int]:
    """Return the lines of each step."""
    found = []
    while True:
        with instructions() as ran:
            is_over = next(steps, NoFile) is NoFile
        found.append(ran.calls)
        if is_over:
            return found


async def test_a_topic_costs_the_same_however_many_there_are() -> None:
    costs = []
    for size in (SMALL, LARGE):
        servers = KnowingServers()
        topics = Topics(NoState(), SimClock(), TopicSettings("b", "c"))  # type: ignore[arg-type]
        task = RegistrationTask(servers, ("ns:1",), BrokerIdentity("c", "b", 0, "a:1", "a:2"), topics, Anything())
        topics.on_change(task.topic_changed)
        for number in range(size):
            topics.auto_create(f"T{number}", "TBW102", 4, False)
        running = asyncio.ensure_future(task.run())
        await task.caught_up()
        servers.bytes = 0
        with instructions() as ran:
            topics.auto_create("made", "TBW102", 4, False)
            topics.file.save_if_changed()
            await task.caught_up()
        assert servers.bytes > 0
        costs.append((ran.calls, servers.bytes))
        running.cancel()
    assert costs[1][1] == costs[0][1], "bytes to the name server"
    assert costs[1][0] <= costs[0][0] + 100, costs


class KnowingServers:
    """Takes every request, and counts what it has to read."""

    bytes = 0

    async def invoke(self, address: str, command: frames.Command, timeout_s: float) -> frames.Command:
        self.bytes += len(command.body)
        return reply(command)


class NoState:
    """A file that is empty and takes everything; a real one makes its text in a job."""

    def load(self) -> None:
        return None

    def save(self, table: Mapping[str, object]) -> None:
        statefile.contents_of(table)


def test_a_dispatch_to_held_pulls_costs_the_same_however_many_are_held() -> None:
    costs = []
    for size in (SMALL, LARGE):
        held = HeldPulls(10 * LARGE, lambda one: None, None, lambda call: None)
        for number in range(size):
            pull = frames.Pull(topic="T", queue_id=0, opaque=number)
            held.hold(FakeConnection(), pull, frozenset({1}), 10.0)  # type: ignore[arg-type]
        with instructions() as ran:
            for offset in range(1, 10):
                held.on_dispatched("T", 0, offset, [Entry(offset - 1, 2)])  # type: ignore[list-item]
        costs.append(ran.calls)
        with instructions() as ran:
            held.on_dispatched("T", 0, 10, [Entry(9, 1)])  # type: ignore[list-item]
        assert ran.calls < STEP_LINES_MAX, "so many are answered, the others in later turns"
    assert costs[1] <= 1.1 * costs[0], costs


class Entry:
    """What a held pull reads of a new message."""

    def __init__(self, queue_offset: int, tags_code: int) -> None:
        self.queue_offset = queue_offset
        self.tags_code = tags_code
