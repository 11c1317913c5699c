"""A registration of many topics gives way while it is read, and takes effect in its order."""

from __future__ import annotations

import asyncio
import json
import zlib

import pytest

from gantry.leaves.frames import Command
from gantry.nameserver.handlers import NameServerHandlers
from gantry.nameserver.keyvalues import KeyValues
from gantry.nameserver.largeregistrations import LargeRegistrations
from gantry.nameserver.settings import Switches
from gantry.nameserver.table import RouteTable
from gantry.transport.connection import Connection
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import Request
from testkit.fake_connection import FakeConnection
from testkit.simclock import SimClock
from testkit.turning import until

BROKER = {"brokerName": "b", "brokerAddr": "10.0.0.1:1", "clusterName": "C", "brokerId": "0", "haServerAddr": "h:1"}


class Server:
    """The table and what takes requests, without sockets."""

    def __init__(self) -> None:
        self.table = RouteTable()
        self.handlers = NameServerHandlers(self.table, KeyValues(), SimClock(), Switches())
        self.large = LargeRegistrations(self.handlers, self.serve)
        self.connection = FakeConnection()

    def serve(self, connection: Connection, requests: list[Request]) -> None:
        first = self.large.first_in(requests)
        self.handlers.serve(connection, requests[:first])
        if first < len(requests):
            self.large.take(connection, requests[first:])

    def send(self, *commands: Command) -> None:
        self.serve(self.connection, list(commands))  # type: ignore[arg-type]


def registration(topics: int, broken: bytes = b"") -> Command:
    table = {
        f"T{number}": {"topicName": f"T{number}", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        for number in range(topics)
    }
    version = {"counter": topics, "stateVersion": 0, "timestamp": 5}
    body = json.dumps({"topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": table}}).encode()
    return Command(RequestCode.REGISTER_BROKER, ext=BROKER, body=body + broken, opaque=1, version=479)


async def test_others_are_answered_while_a_large_registration_is_read() -> None:
    server = Server()
    server.send(registration(5000))
    await asyncio.sleep(0)
    assert server.table.live_count == 0 and server.connection.pauses == {"a registration"}
    other = FakeConnection("10.0.0.2:1")
    server.serve(other, [Command(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=2)])  # type: ignore[arg-type]
    assert [answer.opaque for answer in other.take()] == [2]
    await until(lambda: server.table.live_count == 1)
    assert server.table.route("T4999") is not None and not server.connection.pauses
    assert [answer.code for answer in server.connection.take()] == [0]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, ""),
        (RequestCode.GET_TOPICS_BY_CLUSTER, ""),
        (RequestCode.WIPE_WRITE_PERM_OF_BROKER, "wipeTopicCount"),
        (RequestCode.ADD_WRITE_PERM_OF_BROKER, "addTopicCount"),
    ],
)
async def test_others_are_answered_while_all_topics_are_gone_over(code: RequestCode, told: str) -> None:
    server = Server()
    server.send(registration(5000))
    await until(lambda: server.table.live_count == 1)
    server.connection.take()
    server.send(Command(code, ext={"cluster": "C", "brokerName": "b"}, opaque=3))
    await asyncio.sleep(0)
    assert server.connection.take() == [] and server.connection.pauses
    other = FakeConnection("10.0.0.2:1")
    server.serve(other, [Command(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=2)])  # type: ignore[arg-type]
    assert [answer.opaque for answer in other.take()] == [2]
    await until(lambda: not server.connection.pauses)
    (answer,) = server.connection.take()
    assert answer.opaque == 3
    if told:
        assert answer.ext[told] == "5000"
    else:
        assert json.loads(answer.body)["topicList"] == sorted(f"T{number}" for number in range(5000))


async def test_two_clients_of_one_host_list_all_topics_at_once() -> None:
    server = Server()
    server.send(registration(5000))
    await until(lambda: server.table.live_count == 1)
    two = [FakeConnection("10.0.0.2:1"), FakeConnection("10.0.0.2:2")]
    for one in two:
        server.serve(one, [Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, opaque=3)])  # type: ignore[arg-type]
    await until(lambda: not any(one.pauses for one in two))
    assert [(answer.code, one.closed) for one in two for answer in one.take()] == [(0, False), (0, False)]


async def test_few_compressed_bytes_are_read_in_slices_too() -> None:
    server = Server()
    topics = [f"T{number} 4 4 6 SINGLE_TAG".encode() for number in range(5000)]
    parts = [b"{}", *topics, b"[]"]
    texts = [len(part).to_bytes(4, "big") + part for part in parts]
    texts.insert(1, len(topics).to_bytes(4, "big"))
    body = zlib.compress(b"".join(texts))
    assert len(body) < 32 << 10
    server.send(Command(RequestCode.REGISTER_BROKER, ext=BROKER | {"compressed": "true"}, body=body, version=412))
    await asyncio.sleep(0)
    assert server.table.live_count == 0 and server.connection.pauses == {"a registration"}
    await until(lambda: server.table.live_count == 1)
    assert server.table.route("T4999") is not None


async def test_what_comes_behind_it_on_its_connection_takes_effect_after_it() -> None:
    server = Server()
    gone = Command(RequestCode.UNREGISTER_BROKER, ext=BROKER, opaque=3)
    server.send(registration(2000), gone, registration(2001))
    await until(lambda: server.table.route("T2000") is not None)
    server.send(gone)
    await until(lambda: server.table.live_count == 0)
    assert [answer.opaque for answer in server.connection.take()] == [1, 3, 1, 3]


async def test_a_connection_that_ends_meanwhile_registers_nobody() -> None:
    server = Server()
    server.send(registration(5000))
    await asyncio.sleep(0)
    server.connection.close("gone")
    assert server.table.connection_closed(server.connection) == []
    await until(lambda: not server.large._tasks)
    assert server.table.live_count == 0 and not server.connection.pauses


async def test_an_invalid_one_is_answered_and_the_next_is_taken() -> None:
    server = Server()
    server.send(registration(2000, broken=b"?"), registration(2000))
    await until(lambda: len(server.connection.chunks) == 2)
    assert [answer.code for answer in server.connection.take()] == [ResponseCode.SYSTEM_ERROR, 0]


async def test_it_waits_behind_requests_for_which_there_was_no_time() -> None:
    server = Server()
    server.connection.has_time = False
    info = [Command(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=opaque) for opaque in (5, 6)]
    server.send(*info, registration(2000))
    assert [one.opaque for one in server.connection.postponed] == [6, 1] and not server.connection.pauses
    rest, server.connection.postponed = server.connection.postponed, []
    server.serve(server.connection, rest)  # type: ignore[arg-type]
    await until(lambda: server.table.live_count == 1)
    assert [answer.opaque for answer in server.connection.take()] == [5, 6, 1]


async def test_two_are_read_at_a_time_and_hosts_take_turns() -> None:
    server = Server()
    many = [FakeConnection(f"10.0.0.9:{number}") for number in range(20)]
    for number, connection in enumerate(many):
        large = registration(2000)
        large.ext = BROKER | {"brokerName": f"many-{number}", "brokerAddr": f"10.0.0.9:{number}"}
        server.serve(connection, [large])  # type: ignore[arg-type]
    server.send(registration(2000))
    await until(lambda: server.connection.pauses == set())
    assert server.table.live_count < 5, "one of another host waits for those that are being read"
    await until(lambda: server.table.live_count == 21)


async def test_a_host_whose_bytes_wait_is_refused_more_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    large = registration(2000)
    monkeypatch.setattr("gantry.nameserver.largeregistrations._WAITING_BYTES_MAX", 5 * len(large.body) // 2)
    server = Server()
    one, two = FakeConnection("10.0.0.9:1"), FakeConnection("10.0.0.9:2")
    server.serve(one, [large])  # type: ignore[arg-type]
    server.serve(two, [large])  # type: ignore[arg-type]
    server.send(registration(1000))
    await until(lambda: not (one.pauses or two.pauses or server.connection.pauses))
    codes = [answer.code for connection in (one, two, server.connection) for answer in connection.take()]
    assert codes == [0, ResponseCode.SYSTEM_BUSY, 0]
    server.serve(two, [large])  # type: ignore[arg-type]
    await until(lambda: not two.pauses)
    assert [answer.code for answer in two.take()] == [0]


async def test_an_error_of_this_program_ends_the_connection_and_is_reported() -> None:
    """The broker connects and registers again; without an end it would wait for an answer until its time is over."""
    server = Server()
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    def fail(*_: object) -> None:
        raise TypeError("a bug")

    server.table.register = fail  # type: ignore[assignment]
    server.send(registration(2000), Command(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=2))
    await until(lambda: server.connection.closed)
    assert server.connection.close_reason == "its registration failed" and not server.connection.pauses
    assert [type(context["exception"]) for context in told] == [TypeError]
    assert not server.large._tasks and server.large._waiting.taken == 0
