"""Telemetry streams and the clients they belong to."""

from __future__ import annotations

import asyncio

import pytest

from gantry.proxy import clients as clients_module
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.caller import Caller, read
from gantry.proxy.clients import ALIVE_S, KnownClients
from gantry.proxy.faults import FaultError
from gantry.proxy.stream import Stream

COMMAND = pb.TelemetryCommand(print_thread_stack_trace_command=pb.PrintThreadStackTraceCommand(nonce="1"))


async def test_a_stream_that_nobody_reads_holds_few_commands() -> None:
    stream = Stream("c")
    assert sum(stream.offer(COMMAND) for _ in range(1000)) == 64
    big = pb.TelemetryCommand()
    big.recover_orphaned_transaction_command.message.body = bytes(5 << 20)
    other = Stream("c")
    assert [other.offer(big) for _ in range(3)] == [True, False, False]


async def test_what_was_offered_before_the_end_is_still_written() -> None:
    stream = Stream("c")
    waiting = asyncio.ensure_future(stream.next())
    await asyncio.sleep(0)
    assert stream.offer(COMMAND) and stream.offer(COMMAND)
    stream.finish()
    assert not stream.offer(COMMAND)
    assert [await waiting, await stream.next(), await stream.next()] == [COMMAND, COMMAND, None]
    broken = Stream("c")
    broken.offer(COMMAND)
    broken.finish(FaultError(pb.BAD_REQUEST, "no"))
    assert await broken.next() is None, "a fault ends a stream at once"


def test_a_client_lives_while_it_calls_whatever_becomes_of_its_stream() -> None:
    clients = KnownClients(clients_max=4)
    first, second = Caller("a"), Caller("b")
    clients.seen(first, 0.0)
    clients.seen(second, ALIVE_S - 1)
    assert [one.caller.client_id for one in clients.alive(ALIVE_S + 1)] == ["b"]
    clients.seen(Caller("c"), ALIVE_S + 1)
    assert len(clients) == 2, "the one that was silent made room"
    with pytest.raises(FaultError) as caught:
        clients.seen(Caller("d"), ALIVE_S + 1)
    assert caught.value.code == pb.TOO_MANY_REQUESTS
    assert clients.ended("b") is not None and clients.ended("b") is None


def test_checks_go_to_clients_with_a_stream_that_publish_the_topic_in_turn() -> None:
    clients = KnownClients()
    streams = {}
    for name in ("a", "b", "c", "d"):
        client = clients.seen(Caller(name), 0.0)
        client.sends_to("Milk" if name == "c" else "Tea")
        if name != "d":
            streams[name] = Stream(name)
            client.streams.append(streams[name])
    asked = [clients.stream_for("Tea") for _ in range(4)]
    assert {one.client_id for one in asked if one is not None} == {"a", "b"}
    assert clients.transactional() == ["Milk", "Tea"]
    assert clients.stream_for("Coffee") is None
    clients.ended("a")
    assert clients.stream_for("Tea") is streams["b"]


def test_a_new_client_does_not_look_at_all_others_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    clients, looks = KnownClients(clients_max=6), list[float]()
    monkeypatch.setattr(clients, "expire", looks.append)
    for number in range(3):
        clients.seen(Caller(f"c{number}"), float(number))
    assert looks == []
    with pytest.raises(FaultError):
        clients.seen(Caller("one too many"), 9.0)
    assert looks == [9.0]


def test_open_streams_are_counted_until_they_are_closed() -> None:
    clients, stream = KnownClients(), Stream("a")
    client = clients.seen(Caller("a"), 0.0)
    clients.opened(client, stream)
    clients.ended("a")
    assert clients.streams == 1, "its end is still to be written"
    clients.closed(client, stream)
    assert (clients.streams, client.streams) == (0, [])


def test_a_call_without_a_usable_client_id_is_refused() -> None:
    for metadata in ((), (("x-mq-client-id", "  "),), (("x-mq-client-id", "x" * 600),)):
        with pytest.raises(FaultError) as caught:
            read(metadata, "1.2.3.4:5")
        assert caught.value.code == pb.CLIENT_ID_REQUIRED
    found = read((("x-mq-client-id", "c"), ("x-mq-language", "klingon"), ("x-mq-client-version", "5.0.3")), "p")
    assert (found.language, found.knows_polling_code, found.is_node) == ("KLINGON", True, False)
    assert read((("x-mq-client-id", "c"), ("x-mq-language", "HTTP")), "p").is_node


async def test_what_was_written_makes_room_for_other_commands() -> None:
    stream = Stream("a")
    command = pb.TelemetryCommand(status=pb.Status(message="x" * 1000))
    for _ in range(3):
        while stream.offer(command):
            pass
        held = stream._bytes
        assert held
        while stream._bytes:
            assert await stream.next() is not None
            held -= command.ByteSize()
            assert stream._bytes == held


def test_a_host_may_not_be_all_clients_of_a_proxy_and_gives_back_its_places() -> None:
    clients = KnownClients(clients_max=8)
    for number in range(4):
        clients.seen(Caller(f"c{number}", peer=f"10.0.0.1:{number}"), 0.0)
    with pytest.raises(FaultError, match="share"):
        clients.seen(Caller("one more", peer="10.0.0.1:9"), 0.0)
    clients.seen(Caller("other", peer="10.0.0.2:1"), 0.0)
    clients.seen(Caller("c0", peer="10.0.0.2:9"), 0.0)
    assert clients.ended("c0") is not None, "it counted for the host from which it came first"
    clients.seen(Caller("one more", peer="10.0.0.1:9"), 1.0)
    clients.expire(ALIVE_S + 2.0)
    assert len(clients) == clients._places.taken == 0


def test_settings_that_are_remembered_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients_module, "SETTINGS_BYTES_MAX", 40_000)
    clients = KnownClients()
    long = pb.Settings()
    long.user_agent.hostname = "x" * 10_000
    many = [clients.seen(Caller(f"c{number}", peer=f"10.0.0.1:{number}"), 0.0) for number in range(3)]
    clients.keep_settings(many[0], long)
    clients.keep_settings(many[0], long)
    with pytest.raises(FaultError) as caught:
        for client in many[1:]:
            clients.keep_settings(client, long)
    assert caught.value.code == pb.TOO_MANY_REQUESTS
    clients.keep_settings(clients.seen(Caller("other", peer="10.0.0.2:1"), 0.0), pb.Settings())
    clients.expire(ALIVE_S + 1.0)
    assert clients._settings.taken == 0
