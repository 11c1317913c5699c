"""What is asked and answered about queue locks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gantry.consume.lock_handlers import QUEUES_MAX, LockHandlers
from gantry.consume.locks import QueueLocks
from gantry.errors import RefusedError
from gantry.leaves.frames import Command
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.savedtogether import SavedTogether
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.names import CLIENT_ID_BYTES_MAX
from gantry.model.topic import TopicConfig
from gantry.wire.bodies import MalformedBodyError
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.fake_connection import FakeConnection
from testkit.memory_state import MemoryState
from testkit.requests import answered, request
from testkit.simclock import SimClock


class Play:
    """Handlers over real tables; the topic T has two queues."""

    def __init__(self, auto_create: bool = True) -> None:
        self.clock = SimClock()
        topics = Topics(MemoryState(), self.clock, TopicSettings("b", "c"))
        topics.ensure(TopicConfig("T", read_queues=2, write_queues=2, perm=6))
        groups = Groups(MemoryState(), self.clock, GroupSettings(auto_create=auto_create))
        locks = QueueLocks(MemoryState(), self.clock.monotonic())
        self.saves = 0
        self.is_kept = True
        grants = SavedTogether(lambda: locks.counts.granted, self._save)
        self.handlers = LockHandlers(locks, topics, groups, "b", self.clock, grants)
        self.connection: Any = FakeConnection()

    async def _save(self) -> bool:
        self.saves += 1
        return self.is_kept

    def lock(self, client_id: str, *queues: tuple[str, str, int]) -> list[tuple[str, int]]:
        answer = answered(self.handlers.lock(self.connection, asked(RequestCode.LOCK_BATCH_MQ, client_id, *queues)))
        assert answer.code == ResponseCode.SUCCESS
        return [(item["topic"], item["queueId"]) for item in json.loads(answer.body)["lockOKMQSet"]]

    def unlock(self, client_id: str, *queues: tuple[str, str, int]) -> Command:
        return answered(self.handlers.unlock(self.connection, asked(RequestCode.UNLOCK_BATCH_MQ, client_id, *queues)))


def asked(code: int, client_id: str, *queues: tuple[str, str, int]) -> Command:
    items = [{"topic": topic, "brokerName": broker, "queueId": queue_id} for topic, broker, queue_id in queues]
    return request(code, {"consumerGroup": "g", "clientId": client_id, "mqSet": items, "onlyThisBroker": False})


def test_the_answer_is_what_the_client_has_now() -> None:
    play = Play()
    assert play.lock("a", ("T", "b", 0)) == [("T", 0)]
    assert play.lock("b", ("T", "b", 0), ("T", "b", 1)) == [("T", 1)]
    assert play.lock("a", ("T", "b", 0), ("T", "b", 1)) == [("T", 0)]


def test_a_queue_that_was_given_back_is_free() -> None:
    play = Play()
    play.lock("a", ("T", "b", 0))
    assert play.unlock("b", ("T", "b", 0)).code == ResponseCode.SUCCESS
    assert play.lock("b", ("T", "b", 0)) == []
    assert play.unlock("a", ("T", "b", 0)).code == ResponseCode.SUCCESS
    assert play.lock("b", ("T", "b", 0)) == [("T", 0)]


def test_what_cannot_be_pulled_here_is_not_locked() -> None:
    play = Play()
    assert play.lock("a", ("T", "b", 2), ("T", "b", -1), ("U", "b", 0), ("T", "other", 0)) == []
    assert Play(auto_create=False).lock("a", ("T", "b", 0)) == []


def test_too_many_queues_in_one_request_are_refused() -> None:
    play = Play()
    queues = [("T", "b", 0)] * (QUEUES_MAX + 1)
    for handler in (play.handlers.lock, play.handlers.unlock):
        with pytest.raises(RefusedError, match=f"{QUEUES_MAX + 1} queues in one request, {QUEUES_MAX} are allowed"):
            answered(handler(play.connection, asked(41, "a", *queues)))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"consumerGroup":"g"}',
        b'{"consumerGroup":"g","clientId":"a","mqSet":[7]}',
        b'{"consumerGroup":"g","clientId":"%s","mqSet":[]}' % (b"a" * (CLIENT_ID_BYTES_MAX + 1)),
        b'{"consumerGroup":"%s","clientId":"a","mqSet":[]}' % (b"g" * 200),
    ],
    ids=["nothing", "a list", "no client", "no queue", "a client of a long name", "a group of a long name"],
)
def test_a_body_that_is_none_is_named(body: bytes) -> None:
    with pytest.raises(MalformedBodyError):
        answered(Play().handlers.lock(FakeConnection(), request(RequestCode.LOCK_BATCH_MQ, body)))  # type: ignore[arg-type]


async def test_requests_are_carried_out_in_their_order_whatever_they_name() -> None:
    play = Play()
    first = asked(RequestCode.LOCK_BATCH_MQ, "a", *[("T", "b", 0)] * 200, ("T", "b", 1))
    last = asked(RequestCode.LOCK_BATCH_MQ, "b", ("T", "b", 1))
    handlers, connection = play.handlers, play.connection
    one, other = await asyncio.gather(handlers.lock(connection, first), handlers.lock(connection, last))
    assert b'"queueId":1' in one.body and json.loads(other.body) == {"lockOKMQSet": []}


async def test_a_renewal_does_not_wait_behind_all_that_another_client_asked_for() -> None:
    play = Play()
    many = asked(RequestCode.LOCK_BATCH_MQ, "greedy", *[("T", "b", 0)] * 200)
    mine = asked(RequestCode.LOCK_BATCH_MQ, "owner", ("T", "b", 1))
    other: Any = FakeConnection("10.0.0.2:4711")
    order: list[str] = []

    async def ask(name: str, connection: Any, command: Command) -> None:
        await play.handlers.lock(connection, command)
        order.append(name)

    flood = [ask(f"greedy {number}", play.connection, many) for number in range(20)]
    await asyncio.gather(*flood, ask("owner", other, mine))
    assert order.index("owner") <= 2, order
