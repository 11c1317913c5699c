"""A topic that Apache's broker deleted and made again while it had the folder: ours finds the new messages only."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gantry.client.blocking import BlockingProducer, BlockingPuller, Message
from gantry.wire.codes import RequestCode
from interop import servers
from interop.servers import rpc

TOPIC = "Orders"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[list[servers.Server]]:
    made: list[servers.Server] = []
    yield made
    for server in made:
        server.close()


def start(opened: list[servers.Server], kind: str, home: Path) -> servers.Server:
    server = servers.make(kind, home / f"{kind}{len(opened)}", home / "data", {"brokerName": "broker-a"})
    opened.append(server)
    server.start()
    return server


def send(server: servers.Server, bodies: list[bytes]) -> None:
    servers.wait_until_routed(server.name_server, TOPIC)
    with BlockingProducer("filler", nameserver=server.name_server) as producer:
        for body in bodies:
            producer.send(Message(TOPIC, body))


def bodies_of(server: servers.Server) -> list[bytes]:
    servers.wait_until_routed(server.name_server, TOPIC)
    found: list[bytes] = []
    with BlockingPuller("audit", nameserver=server.name_server) as puller:
        for queue in puller.queues(TOPIC):
            at, end = puller.min_offset(queue), puller.max_offset(queue)
            while at < end:
                result = puller.pull(queue, at)
                found += [message.body for message in result.messages]
                at = result.next_offset
    return sorted(found)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("every_tool")
@pytest.mark.parametrize("version", ["4.9.7", "5.x"])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_topic_that_apache_deleted_and_made_again_has_its_new_messages_here(
    version: str, end: str, tmp_path: Path, opened: list[servers.Server]
) -> None:
    ours = start(opened, "gantry", tmp_path)
    servers.create_topic(ours, TOPIC)
    send(ours, [b"old%d" % number for number in range(80)])
    ours.stop()
    apache = start(opened, f"apache-{version}", tmp_path)
    assert len(bodies_of(apache)) == 80
    for name in (apache.broker, apache.name_server):
        code = RequestCode.DELETE_TOPIC_IN_BROKER if name == apache.broker else RequestCode.DELETE_TOPIC_IN_NAMESRV
        rpc(name, code, {"topic": TOPIC})
    servers.create_topic(apache, TOPIC, queues=2)
    new = sorted(b"new%d" % number for number in range(11))
    send(apache, new)
    assert bodies_of(apache) == new
    getattr(apache, end)()
    ours = start(opened, "gantry", tmp_path)
    assert bodies_of(ours) == new
    ours.stop()
    apache = start(opened, f"apache-{version}", tmp_path)
    assert bodies_of(apache) == new
