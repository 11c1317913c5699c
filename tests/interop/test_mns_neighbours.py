"""MNS's clients beside clients of other protocols: one queue of HTTP is a topic for all of them."""

from __future__ import annotations

import pytest

from interop import grpcclients, mnsclients, servers
from interop.clients import Client, Running
from interop.conftest import require
from interop.grpcclients import begin_at_the_start, create_group
from interop.processes import Driver
from interop.sdkplay import Play

pytestmark = pytest.mark.only_on_gantry

PRIORITIES = 16
LONG = "0123456789" * 3_000  # remoting clients compress bodies above 4 KiB


@pytest.fixture
def http(mns: Running) -> Driver:
    require("cpp")
    return mns.driver(mnsclients.CLIENTS["sdk"])


def test_what_is_sent_over_http_reaches_groups_of_remoting_and_grpc(
    http: Driver, java: Client, running: Running, sdks: Running, server: servers.Server, name: str
) -> None:
    http.call("create_queue", queue=name)
    play = Play(sdks.driver(grpcclients.sdk("python")), server, name)
    create_group(server, play.group)
    begin_at_the_start(server, play.group, name, PRIORITIES)
    receiver = running.driver(java)
    receiver.call("subscribe", id=name, group=f"R{name}", topic=name, expression="*")
    given = {"colour": ["STRING", "blue"]}
    sent = {
        str(http.call("send", queue=name, body=body, raw=True, priority=priority, properties=given)["messageId"]): body
        for priority, body in ((1, "first 中"), (16, "last"))
    }
    over_remoting = receiver.receive(name, 2)
    assert {str(event["msgId"]): event["body"] for event in over_remoting} == sent
    play.consume("simple")
    over_grpc = play.receive(2, 30)
    assert {str(one["messageId"]): one["body"] for one in over_grpc} == sent
    assert {event["colour"] for event in [*over_remoting, *over_grpc]} == {"blue"}
    over_http = [http.call("receive", queue=name, raw=True, wait_s=10) for _ in range(2)]
    found = [str(one["body"]) for one in over_http]
    assert found == ["first 中", "last"], "the other groups took nothing from the queue"


def test_what_remoting_and_grpc_clients_send_is_received_over_http(
    http: Driver, java: Client, running: Running, sdks: Running, name: str
) -> None:
    http.call("create_queue", queue=name)
    fields = {"group": f"P{name}", "topic": name, "count": 1, "prefix": "remoting", "padding": LONG}
    remoting = grpcclients.rows(running.driver(java).call("send", **fields))
    grpc = sdks.driver(grpcclients.sdk("python")).call("send", topic=name, count=1, prefix="grpc")
    got = {}
    while len(got) < 2:
        one = http.call("receive", queue=name, raw=True, wait_s=20)
        got[str(one["body"])] = one
        http.call("delete", queue=name, handle=one["handle"])
    assert set(got) == {f"remoting-0{LONG}", "grpc-0"}
    assert got["grpc-0"]["messageId"] == grpcclients.rows(grpc)[0]["messageId"]
    assert got[f"remoting-0{LONG}"]["messageId"] == remoting[0]["msgId"]
    assert all(one["count"] == 1 and one["group"] == "" for one in got.values())
