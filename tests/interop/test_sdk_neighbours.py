"""RocketMQ 5's own clients, which speak gRPC, beside clients that speak remoting to the broker: one topic for both."""

import pytest

from interop import servers
from interop.clients import Client, Running
from interop.grpcclients import create_topic
from interop.sdkplay import Play
from testkit.rawclient import RawClient

BIG = "0123456789" * 5_000  # remoting clients compress bodies above 4 KiB


def test_what_a_remoting_client_sends_arrives(plays: list[Play], running: Running, java: Client) -> None:
    sender = running.driver(java)
    for play in plays:
        play.prepare()
        play.consume("subscribe")
        fields = {"group": "P" + play.topic, "topic": play.topic, "tag": "TagB"}
        sender.call("send", count=2, prefix="small", **fields)
        sender.call("send", count=1, prefix="big", padding=BIG, **fields)
        sender.call("send", kind="batch", count=2, prefix="batch", **fields)
    for play in plays:
        wanted = ["batch-0", "batch-1", f"big-0{BIG}", "small-0", "small-1"]
        assert sorted(play.has_got("done", 5)) == wanted, play.topic
        events = [event for event in play.driver.events if event["event"] == "message"]
        assert {(event["tag"], event["colour"], event["isCorrupted"]) for event in events} == {("TagB", "blue", False)}
        assert {key for event in events for key in event["keys"]} >= {"small-key-0", "big-key-0", "batch-key-1"}


def test_a_remoting_client_receives_what_is_sent(plays: list[Play], running: Running, java: Client) -> None:
    receiver = running.driver(java)
    for play in plays:
        create_topic(play.server, play.topic)
        receiver.call("subscribe", id=play.topic, group=play.group, topic=play.topic, expression="TagB")
        play.send(3, tag="TagB", padding=" größer als 我")
        play.send(1, tag="TagA")
    for play in plays:
        events = receiver.receive(play.topic, 3)
        assert sorted(str(event["body"]) for event in events) == [f"m-{n} größer als 我" for n in range(3)]
        assert {(event["keys"], event["colour"]) for event in events} == {(f"m-key-{n}", "blue") for n in range(3)}


def test_a_message_without_an_id_has_one_for_its_consumers(plays: list[Play], server: servers.Server) -> None:
    host, port = server.broker.split(":")
    for play in plays:
        play.prepare()
        play.consume("subscribe")
        with RawClient((host, int(port))) as client:
            client.send(play.topic, 0, b"bare")
            assert client.reply() is not None
    for play in plays:
        assert play.has_got("done", 1) == ["bare"], play.topic
        assert all(event["messageId"] for event in play.driver.events if event["event"] == "message")


@pytest.mark.slow
@pytest.mark.only_on_gantry  # Apache makes dead letter topics that cannot be read
def test_dead_letters_of_a_listener_are_read_by_a_remoting_client(
    plays: list[Play], running: Running, java: Client
) -> None:
    reader = running.driver(java)
    for play in plays:
        play.prepare(retries=1)
        play.consume("subscribe", fail="always")
        play.send(1)
    for play in plays:
        play.has_got("failed", 2)
        dead = f"%DLQ%{play.group}"
        servers.wait_until_routed(play.server.name_server, dead)
        reader.call("subscribe", id=play.topic, group="D" + play.group, topic=dead)
        (event,) = reader.receive(play.topic, 1)
        assert (event["body"], event["keys"]) == ("m-0", "m-key-0")


