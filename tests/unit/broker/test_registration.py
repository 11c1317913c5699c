"""Every name server hears of the broker, and none can hold up the others."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest

from gantry.broker.complaints import Complaints
from gantry.broker.permitted_topics import PermittedTopics
from gantry.broker.registration import RegistrationTask
from gantry.broker.registration_body import BrokerIdentity
from gantry.errors import OutcomeUnknownError, UnreachableError
from gantry.leaves.frames import Command
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.route import QueueData, TopicRoute
from gantry.model.topic import TopicConfig
from gantry.nameserver.registration import decode_registration
from gantry.wire import bodies, headers
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.memory_state import MemoryState
from testkit.simclock import SimClock
from testkit.turning import until


class NameServers:
    """Takes requests; what an address answers is its entry in `answers`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Command]] = []
        self.answers: dict[str, int] = {}
        self.version = 0
        self.refuses: dict[tuple[str, int], int] = {}
        self.open = asyncio.Event()
        self.open.set()
        self.hangs: set[str] = set()
        self.timeouts: list[float] = []

    async def invoke(self, address: str, command: Command, timeout_s: float) -> Command:
        self.asked.append((address, command))
        self.timeouts.append(timeout_s)
        if address in self.hangs:
            await asyncio.sleep(timeout_s)
            raise OutcomeUnknownError(f"{address}: no answer")
        await self.open.wait()
        code = self.refuses.get((address, command.code), self.answers.get(address, 0))
        if code < 0:
            raise UnreachableError(f"{address}: refused")
        answer = reply(command, code, "because" if code else None)
        answer.version = self.version or answer.version
        return answer

    def take(self) -> list[tuple[str, int]]:
        taken, self.asked = self.asked, []
        return [(address, command.code) for address, command in taken]


class Play:
    def __init__(self, *servers: str, timeout_s: float = 3.0) -> None:
        clock = SimClock()
        self.topics = Topics(MemoryState(), clock, TopicSettings("b", "c"))
        self.servers = NameServers()
        complaints = Complaints(logging.getLogger("test"), clock)
        identity = BrokerIdentity("c", "b", 0, "10.0.0.9:10911", "10.0.0.9:10912")
        self.registration = RegistrationTask(self.servers, servers, identity, self.topics, complaints, 30.0, timeout_s)
        self.topics.on_change(self.registration.topic_changed)


async def test_a_registration_carries_the_whole_table_and_its_checksum() -> None:
    play = Play("ns:1")
    play.topics.put(TopicConfig("orders", 2, 3))
    await play.registration.register_once()
    ((_, command),) = play.servers.asked
    header = headers.parse(RequestCode.REGISTER_BROKER, command.ext)
    assert (header.text("brokerName"), header.text("brokerAddr")) == ("b", "10.0.0.9:10911")
    assert (header.text("clusterName"), header.integer("brokerId")) == ("c", 0)
    body = decode_registration(command.body, False, command.version)
    assert body.topics["orders"] == TopicConfig("orders", 2, 3)
    assert body.version == play.topics.data_version and len(body.topics) >= 2
    assert int(command.ext["bodyCrc32"]) > 0


async def test_name_servers_are_told_at_the_same_time_and_failures_stay_apart(caplog: pytest.LogCaptureFixture) -> None:
    play = Play("up:1", "down:1", "refuses:1")
    play.servers.answers = {"down:1": -1, "refuses:1": 1}
    await play.registration.register_once()
    await play.registration.register_once()
    assert play.registration.is_registered == {"up:1": True, "down:1": False, "refuses:1": False}
    assert len(caplog.records) == 2, "one line per name server and minute"


async def test_changes_during_a_round_are_carried_by_one_more_topic_by_topic() -> None:
    play = Play("ns:1")
    running = asyncio.ensure_future(play.registration.run())
    play.servers.open.clear()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for number in range(5):
        play.topics.put(TopicConfig(f"t{number}"))
    caught_up = asyncio.ensure_future(play.registration.caught_up())
    await asyncio.sleep(0)
    assert not caught_up.done()
    play.servers.open.set()
    await caught_up
    told = play.servers.asked[1:]
    assert [command.code for _, command in told] == [RequestCode.REGISTER_TOPIC_IN_NAMESRV] * 5
    assert [command.ext["topic"] for _, command in told] == [f"t{number}" for number in range(5)]
    running.cancel()
    await asyncio.wait({running})


async def test_nobody_waits_longer_than_the_time_out() -> None:
    play = Play("silent:1", timeout_s=0.02)
    play.servers.open.clear()
    running = asyncio.ensure_future(play.registration.run())
    play.topics.put(TopicConfig("orders"))
    await play.registration.caught_up()
    running.cancel()
    await asyncio.wait({running})


async def test_goodbye_goes_to_those_who_know_us() -> None:
    play = Play("up:1", "down:1")
    play.servers.answers = {"down:1": -1}
    await play.registration.register_once()
    play.servers.take()
    await play.registration.unregister()
    assert play.servers.take() == [("up:1", RequestCode.UNREGISTER_BROKER)]


def test_no_topic_may_do_more_than_its_broker() -> None:
    play = Play()
    play.topics.put(TopicConfig("orders", 2, 2))
    permitted = PermittedTopics(play.topics, 6)
    assert list(permitted.all()) == list(play.topics.all()) and permitted.head() == play.topics.head()
    permitted.permission = 4
    assert permitted.head()["dataVersion"] != play.topics.head()["dataVersion"], "else a name server keeps what it has"
    perms = {topic.name: topic.perm for topic in permitted.all()}
    orders = permitted.get("orders")
    assert (perms["orders"], perms["TBW102"]) == (4, 5) and orders is not None and orders.perm == 4
    assert permitted.get("nothing") is None
    config = play.topics.get("orders")
    assert config is not None and config.perm == 6, "the table itself stays as it is"


async def test_one_that_is_missing_is_asked_again_every_second_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gantry.broker.registration_worker._AGAIN_S", 0.001)
    play = Play("up:1", "down:1")
    play.servers.answers = {"down:1": -1}
    running = asyncio.ensure_future(play.registration.run())
    await until(lambda: len(play.servers.asked) >= 5)
    play.servers.answers = {}
    await until(lambda: play.registration.is_registered["down:1"])
    asked = [address for address, _ in play.servers.take()]
    assert asked.count("up:1") == 1
    running.cancel()
    await asyncio.wait({running})


async def test_a_lost_connection_is_a_lost_registration_and_made_again_at_once() -> None:
    play = Play("a:1", "b:1")
    running = asyncio.ensure_future(play.registration.run())
    await until(lambda: all(play.registration.is_registered.values()))
    play.servers.take()
    play.registration.connection_lost("b:1")
    assert play.registration.is_registered == {"a:1": True, "b:1": False}
    await until(lambda: play.registration.is_registered["b:1"])
    assert play.servers.take() == [("b:1", RequestCode.REGISTER_BROKER)]
    running.cancel()
    await asyncio.wait({running})


async def test_the_epoch_travels_as_the_state_version_and_another_id_is_told_at_once() -> None:
    play = Play("ns:1")
    running = asyncio.ensure_future(play.registration.run())
    await until(lambda: play.registration.is_registered["ns:1"])
    play.registration.stand_as(3, 7)
    await play.registration.caught_up()
    (_, first), (_, second) = play.servers.asked
    told = [decode_registration(command.body, False, command.version) for command in (first, second)]
    assert [body.version.state_version for body in told] == [0, 7]
    assert [headers.parse(one.code, one.ext).integer("brokerId") for one in (first, second)] == [0, 3]
    running.cancel()
    await asyncio.wait({running})


async def test_a_topic_is_told_alone_and_a_deleted_one_with_the_whole_table() -> None:
    play = Play("ns:1")
    running = asyncio.ensure_future(play.registration.run())
    await play.registration.caught_up()
    await until(lambda: play.registration.is_registered["ns:1"])
    play.servers.take()
    play.topics.put(TopicConfig("orders", 2, 3))
    await play.registration.caught_up()
    ((_, command),) = play.servers.asked
    assert (command.code, command.ext) == (217, {"topic": "orders", "brokerAddr": "10.0.0.9:10911"})
    assert TopicRoute.from_json(bodies.loads(command.body)).queues == (QueueData("b", 2, 3, 6),)
    play.servers.take()
    play.topics.delete("orders")
    await play.registration.caught_up()
    assert play.servers.take() == [("ns:1", RequestCode.REGISTER_BROKER)]
    running.cancel()
    await asyncio.wait({running})


async def test_a_name_server_that_does_not_know_single_topics_gets_the_whole_table() -> None:
    play = Play("old:1", "new:1")
    running = asyncio.ensure_future(play.registration.run())
    await until(lambda: all(play.registration.is_registered.values()))
    play.servers.take()
    play.servers.refuses = {("old:1", RequestCode.REGISTER_TOPIC_IN_NAMESRV): ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
    for name in ("a", "b"):
        play.topics.put(TopicConfig(name))
        await play.registration.caught_up()
    taken = play.servers.take()
    assert [code for address, code in taken if address == "old:1"] == [217, 103, 103], "it is asked once"
    assert [code for address, code in taken if address == "new:1"] == [217, 217]
    play.registration.connection_lost("old:1")
    assert not play.registration.is_registered["old:1"]
    await until(lambda: play.registration.is_registered["old:1"])
    play.topics.put(TopicConfig("c"))
    await play.registration.caught_up()
    assert ("old:1", 217) in play.servers.take(), "it may be a newer one now"
    running.cancel()
    await asyncio.wait({running})


async def test_a_name_server_before_5_0_is_never_asked_to_take_one_topic() -> None:
    play = Play("old:1")
    play.servers.version = 412
    running = asyncio.ensure_future(play.registration.run())
    await until(lambda: play.registration.is_registered["old:1"])
    play.topics.put(TopicConfig("a"))
    await play.registration.caught_up()
    assert play.servers.take() == [("old:1", RequestCode.REGISTER_BROKER)] * 2, "it would not answer"
    running.cancel()
    await asyncio.wait({running})


async def test_one_that_has_forgotten_the_broker_is_told_everything_at_once() -> None:
    play = Play("ns:1")
    running = asyncio.ensure_future(play.registration.run())
    await until(lambda: play.registration.is_registered["ns:1"])
    play.servers.take()
    play.servers.refuses = {("ns:1", RequestCode.REGISTER_TOPIC_IN_NAMESRV): ResponseCode.SYSTEM_ERROR}
    play.topics.put(TopicConfig("orders"))
    await until(lambda: len(play.servers.asked) == 2)
    assert [code for _, code in play.servers.take()] == [217, 103]
    running.cancel()
    await asyncio.wait({running})


async def test_one_that_is_lost_among_many_topics_is_told_no_more_of_them() -> None:
    play = Play("ns:1")
    running = asyncio.ensure_future(play.registration.run())
    await until(lambda: play.registration.is_registered["ns:1"])
    play.servers.take()
    play.servers.refuses = {("ns:1", RequestCode.REGISTER_TOPIC_IN_NAMESRV): -1}
    for number in range(200):
        play.topics.put(TopicConfig(f"orders{number}"))
    await until(lambda: ("ns:1", RequestCode.REGISTER_BROKER) in [(to, one.code) for to, one in play.servers.asked])
    assert [code for _, code in play.servers.take()] == [217] * 64 + [103], "the whole table has the rest"
    running.cancel()
    await asyncio.wait({running})


async def test_a_slave_tells_no_topics_until_it_is_the_master() -> None:
    play = Play("ns:1")
    play.registration.stand_as(1, 7)
    running = asyncio.ensure_future(play.registration.run())
    await until(lambda: play.registration.is_registered["ns:1"])
    play.servers.take()
    play.topics.put(TopicConfig("orders"))
    await play.registration.caught_up()
    assert play.servers.take() == []
    play.registration.stand_as(0, 8)
    await play.registration.caught_up()
    ((_, command),) = play.servers.asked
    assert "orders" in decode_registration(command.body, False, command.version).topics
    running.cancel()
    await asyncio.wait({running})


async def test_a_master_that_becomes_a_slave_during_a_round_tells_no_more_topics() -> None:
    play = Play("ns:1")
    running = asyncio.ensure_future(play.registration.run())
    await until(lambda: play.registration.is_registered["ns:1"])
    play.servers.take()
    play.servers.open.clear()
    for number in range(200):
        play.topics.put(TopicConfig(f"orders{number}"))
    await until(lambda: len(play.servers.asked) == 64)
    play.registration.stand_as(2, 8)
    play.servers.open.set()
    await until(lambda: ("ns:1", RequestCode.REGISTER_BROKER) in [(to, one.code) for to, one in play.servers.asked])
    assert [code for _, code in play.servers.take()] == [217] * 64 + [103], "the whole table is a slave's"
    running.cancel()
    await asyncio.wait({running})


async def test_a_table_that_no_frame_holds_is_said_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gantry.metadata.longanswers.ANSWER_BYTES_MAX", 100)
    play = Play("ns:1")
    await play.registration.register_once()
    assert play.registration.is_registered == {"ns:1": False} and play.servers.take() == []
    assert "have fewer topics" in caplog.text


async def test_a_name_server_that_hangs_delays_neither_the_others_nor_answers_that_wait_for_them() -> None:
    play = Play("up:1", "hangs:1", timeout_s=30.0)
    play.servers.hangs = {"hangs:1"}
    running = asyncio.ensure_future(play.registration.run())
    await until(lambda: play.registration.is_registered["up:1"])
    play.servers.take()
    play.topics.put(TopicConfig("orders"))
    await until(lambda: ("up:1", RequestCode.REGISTER_TOPIC_IN_NAMESRV) in play.servers.take())
    play.registration.stand_as(0, 8)
    await until(lambda: ("up:1", RequestCode.REGISTER_BROKER) in play.servers.take())
    assert not play.registration.is_registered["hangs:1"]
    running.cancel()
    await asyncio.wait({running})


async def test_one_that_does_not_answer_in_time_gets_more_time_and_is_not_waited_for() -> None:
    play = Play("slow:1", timeout_s=0.01)
    play.servers.hangs = {"slow:1"}
    for _ in range(5):
        await play.registration.register_once()
    assert play.servers.timeouts == [0.01, 0.02, 0.04, 0.08, 0.08]
    play.topics.put(TopicConfig("orders"))
    caught_up = asyncio.ensure_future(play.registration.caught_up())
    await asyncio.sleep(0)
    assert caught_up.done()
    play.servers.hangs, play.servers.answers = set(), {"slow:1": 1}
    await play.registration.register_once()
    assert play.servers.timeouts[-1] == 0.08, "one that refuses has read in vain too"
    play.servers.answers = {}
    await play.registration.register_once()
    await play.registration.register_once()
    assert play.registration.is_registered == {"slow:1": True} and play.servers.timeouts[-1] == 0.01


async def test_name_servers_share_one_encoding_and_nobody_gets_one_from_before_a_change() -> None:
    play = Play("a:1", "b:1")
    await play.registration.register_once()
    await play.registration.register_once()
    (body, *others) = [command.body for _, command in play.servers.asked]
    assert all(other is body for other in others), "one that is tried again costs no encoding either"
    others.clear()
    play.servers.take()
    references = sys.getrefcount(body)
    play.topics.put(TopicConfig("orders"))
    await play.registration.register_once()
    assert all(b"orders" in command.body for _, command in play.servers.asked)
    assert sys.getrefcount(body) < references, "what is replaced is not kept: it may have megabytes"
