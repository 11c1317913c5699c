"""RocketMQ 5's own clients, which speak gRPC to a proxy: their drivers, and what a test needs of the broker behind it.

All three drivers take the same commands.  A topic of these clients has a type, and takes no message of another one.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from gantry.leaves import properties as packed
from gantry.wire.codes import RequestCode as Code
from interop import prepare, servers
from interop.clients import Client
from interop.numbered import split
from interop.processes import Driver, DriverError, Json
from testkit.patience import HANG_S
from testkit.rawclient import FOUND, PULL, RawClient, pull_fields

T = TypeVar("T")

QUEUES = 4


def start_python(roots: Path | None, home: Path, endpoints: str) -> Driver:
    script = str(prepare.HERE / "sdks" / "python" / "driver.py")
    return Driver("sdk-python", [str(prepare.sdk_python()), script, *_reached(roots, endpoints)], home, _trust(roots))


def start_node(roots: Path | None, home: Path, endpoints: str) -> Driver:
    env = {"NODE_PATH": str(prepare.sdk_node() / "node_modules"), **_trust(roots)}
    script = str(prepare.HERE / "sdks" / "node" / "driver.js")
    return Driver("sdk-node", ["node", "--max-old-space-size=256", script, *_reached(roots, endpoints)], home, env)


def start_java(roots: Path | None, home: Path, endpoints: str) -> Driver:
    command = ["java", "-Xmx256m", *prepare.TEST_FLAGS, f"-Duser.home={home}", "-cp", prepare.sdk_java(), "Sdk"]
    return Driver("sdk-java", [*command, *_reached(roots, endpoints)], home)


def _reached(roots: Path | None, endpoints: str) -> list[str]:
    return [endpoints, "plain" if roots is None else "tls"]


def _trust(roots: Path | None) -> dict[str, str]:
    """What has gRPC for Python and Node.js accept a proxy's own certificate; Java's client accepts any."""
    return {} if roots is None else {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(roots)}


_STARTS = {"python": start_python, "node": start_node, "java": start_java}
SDKS = tuple(_STARTS)
TOOLS = {"python": "cpp", "node": "node", "java": "java"}  # what `prepare` needs for each


def sdk(name: str, roots: Path | None = None) -> Client:
    """A client by its language; with certificates to trust it uses TLS."""
    return Client(f"sdk-{name}{'-tls' if roots else ''}", partial(_STARTS[name], roots), (), ends=True)


@dataclass(frozen=True)
class Stored:
    """A record as it stands in a queue of the broker."""

    queue: int
    offset: int
    body: str
    properties: dict[str, str]


def create_topic(server: servers.Server, topic: str, kind: str = "NORMAL", queues: int = QUEUES) -> None:
    """Make a topic of a message type, and wait until the name server knows it."""
    ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
    ext |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    header, _ = servers.rpc(server.broker, Code.UPDATE_AND_CREATE_TOPIC, {**ext, "attributes": f"+message.type={kind}"})
    assert header["code"] == 0, header
    servers.wait_until_routed(server.name_server, topic)


def create_group(
    server: servers.Server,
    group: str,
    *,
    is_orderly: bool = False,
    retries: int = 16,
    delays_ms: Sequence[int] = (),
) -> None:
    """Make a consumer group; its failed messages come again after these delays."""
    config: Json = {"groupName": group, "consumeEnable": True, "consumeFromMinEnable": True, "brokerId": 0}
    config |= {"consumeBroadcastEnable": True, "retryQueueNums": 1, "retryMaxTimes": retries}
    config |= {"whichBrokerWhenConsumeSlowly": 1, "notifyConsumerIdsChangedEnable": True}
    if delays_ms:
        config["groupRetryPolicy"] = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": list(delays_ms)}}
    body = json.dumps({**config, "consumeMessageOrderly": is_orderly}).encode()
    header, _ = servers.rpc(server.broker, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert header["code"] == 0, header


def begin_at_the_start(server: servers.Server, group: str, topic: str, queues: int = QUEUES) -> None:
    """Let a group that has not consumed yet have what was sent before it came."""
    for queue in range(queues):
        ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue), "commitOffset": "0"}
        header, _ = servers.rpc(server.broker, Code.UPDATE_CONSUMER_OFFSET, ext)
        assert header["code"] == 0, header


def stored(server: servers.Server, topic: str, queues: int = QUEUES) -> list[Stored]:
    """Everything in the queues of a topic, queue by queue."""
    host, port = server.broker.split(":")
    found: list[Stored] = []
    with RawClient((host, int(port))) as client:
        for queue in range(queues):
            offset = 0
            while (reply := client.ask(PULL, pull_fields(topic, queue, offset))).code == FOUND:
                offset = int(reply.ext["nextBeginOffset"])
                for record in split(reply.body):
                    values = packed.parse(record.properties)
                    found.append(Stored(queue, record.queue_offset, record.body.decode(), values))
    return found


def bodies(messages: list[Stored]) -> list[str]:
    return sorted(message.body for message in messages)


def rows(answer: Json, field: str = "results") -> list[Json]:
    found = answer[field]
    assert isinstance(found, list)
    return found


def insist(what: Callable[[], object]) -> None:
    """Do it again and again until a driver does not say no."""
    deadline = time.monotonic() + HANG_S
    while True:
        try:
            what()
            break
        except DriverError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)


def wait_until(what: Callable[[], T], holds: Callable[[T], bool]) -> T:
    """Look again and again until it holds; AssertionError with what was seen last."""
    deadline = time.monotonic() + HANG_S
    while not holds(seen := what()):
        assert time.monotonic() < deadline, f"still {seen}"
        time.sleep(0.1)
    return seen
