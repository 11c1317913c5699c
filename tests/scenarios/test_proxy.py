"""The gRPC proxy in front of a real broker, each in a process of its own: every RPC, and what else may come in.

The client is made from the proxy's own descriptors; RocketMQ's clients, unmodified, are in tests/interop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from gantry.client.admin import Admin
from gantry.client.consumer import Consumer
from gantry.client.settings import ConsumerSettings, StartFrom
from gantry.model.subscription import GroupConfig
from gantry.proxy import messaging_pb2 as pb
from testkit.grpcclient import GrpcClient, message, resource
from testkit.patience import HANG_S
from testkit.process import GantryProcess

TYPES = {"Normal": "NORMAL", "Fifo": "FIFO", "Delay": "DELAY", "Half": "TRANSACTION", "Mixed": "MIXED"}
HERE = pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="127.0.0.1", port=8081)])
GROUP, ORDERLY = "shop", "orderly"


class Server:
    """A standalone with its proxy, and topics of each type."""

    def __init__(self, process: GantryProcess) -> None:
        self.process = process
        self.port = process.addresses["grpc"][1]
        self.nameserver = "{}:{}".format(*process.addresses["nameserver"])

    async def prepare(self) -> None:
        async with Admin(nameserver=self.nameserver) as admin:
            for name, kind in TYPES.items():
                await admin.create_topic(name, queues=2, attributes={"message.type": kind})
            await admin.create_group(GROUP)
            await admin.create_group(GroupConfig(ORDERLY, consume_orderly=True))

    def client(self, **fields: Any) -> GrpcClient:
        return GrpcClient(self.port, **fields)

    async def stored(self, topic: str, count: int) -> list[Any]:
        """So many messages of a topic, by a consumer that speaks remoting."""
        found: list[Any] = []
        whole = asyncio.Event()

        async def listen(got: Any) -> None:
            found.append(got)
            if len(found) >= count:
                whole.set()

        settings = ConsumerSettings(start_from=StartFrom.FIRST)
        wanted = {topic: "*"}
        async with Consumer(
            f"see-{topic}", nameserver=self.nameserver, subscription=wanted, listener=listen, settings=settings
        ):
            async with asyncio.timeout(HANG_S):
                await whole.wait()
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("proxy") / "store"
    config = {"standalone.grpc_port": "0", "transactions.check_interval_s": "1", "transactions.immunity_s": "1"}
    with GantryProcess(folder, config) as process:
        found = Server(process)
        asyncio.run(found.prepare())
        yield found
        assert process.stop() == 0
        assert "Traceback" not in process.stderr(), process.stderr()[-4000:]


async def test_a_route_names_the_clients_own_endpoints_and_the_types_of_the_topic(server: Server) -> None:
    async with server.client() as client:
        found = await client.call("QueryRoute", pb.QueryRouteRequest(topic=resource("Mixed"), endpoints=HERE))
        assert found.status.code == pb.OK
        assert [queue.id for queue in found.message_queues] == [0, 1]
        assert found.message_queues[0].broker.endpoints == HERE
        assert list(found.message_queues[0].accept_message_types) == [pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION]
        for name, code in (("None", pb.TOPIC_NOT_FOUND), ("a b", pb.ILLEGAL_TOPIC), ("TBW102", pb.ILLEGAL_TOPIC)):
            found = await client.call("QueryRoute", pb.QueryRouteRequest(topic=resource(name), endpoints=HERE))
            assert found.status.code == code


async def test_a_group_is_assigned_any_queue_and_an_orderly_one_each(server: Server) -> None:
    async with server.client() as client:
        for group, ids in ((GROUP, [-1]), (ORDERLY, [0, 1]), ("new", [-1])):
            request = pb.QueryAssignmentRequest(topic=resource("Normal"), group=resource(group), endpoints=HERE)
            found = await client.call("QueryAssignment", request)
            assert [one.message_queue.id for one in found.assignments] == ids


async def test_settings_are_answered_at_once_and_again(server: Server) -> None:
    """RocketMQ's client for Node.js may not see the first answer."""
    async with server.client() as client:
        stream = client.telemetry()
        sent = pb.Settings(client_type=pb.PUSH_CONSUMER)
        sent.subscription.group.name = ORDERLY
        await stream.write(pb.TelemetryCommand(settings=sent))
        first, again = await stream.read(), await stream.read()
        assert first == again and first.status.code == pb.OK
        assert first.settings.subscription.fifo and first.settings.backoff_policy.max_attempts == 17
        await stream.write(pb.TelemetryCommand(settings=sent))
        assert await stream.read() == first, "every settings command has an answer"
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF


@pytest.mark.parametrize("fault", ["nothing", "topic", "group"])
async def test_settings_that_cannot_be_used_end_the_stream(server: Server, fault: str) -> None:
    sent = pb.Settings(client_type=pb.PRODUCER)
    if fault == "topic":
        sent.publishing.topics.add(name="a b")
    elif fault == "group":
        sent.subscription.group.name = "a b"
    async with server.client() as client:
        stream = client.telemetry()
        await stream.write(pb.TelemetryCommand(settings=sent))
        with pytest.raises(grpc.aio.AioRpcError, match=r"process client telemetryCommand failed\.") as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_heartbeat_without_settings_is_taken(server: Server) -> None:
    """Python's client opens its stream again only after five minutes when a proxy was restarted."""
    async with server.client() as client:
        request = pb.HeartbeatRequest(group=resource(GROUP), client_type=pb.PUSH_CONSUMER)
        assert (await client.call("Heartbeat", request)).status.code == pb.OK
    async with server.client(client_id=" ") as client:
        assert (await client.call("Heartbeat", pb.HeartbeatRequest())).status.code == pb.CLIENT_ID_REQUIRED


async def test_a_sent_message_is_what_remoting_consumers_get(server: Server) -> None:
    sent = message("Normal", "茶".encode(), tag="green", keys=["k1", "k2"], born_host="here")
    sent.user_properties["colour"] = "green"
    batch = [message("Normal", b"first"), message("Normal", b"second")]
    async with server.client() as client:
        answer = await client.send(sent)
        assert answer.status.code == pb.OK
        assert answer.entries[0].message_id == sent.system_properties.message_id
        answer = await client.send(*batch)
        assert [entry.status.code for entry in answer.entries] == [pb.OK, pb.OK]
        assert answer.entries[1].offset == answer.entries[0].offset + 1, "a batch stands together"
    found = {one.message_id: one for one in await server.stored("Normal", 3)}
    assert set(found) == {one.system_properties.message_id for one in (sent, *batch)}
    got = found[sent.system_properties.message_id]
    assert (got.body, got.tags, got.keys) == ("茶".encode(), "green", ("k1", "k2"))
    assert got.properties["colour"] == "green"


async def test_messages_of_a_group_go_to_one_queue(server: Server) -> None:
    async with server.client() as client:
        sent = [message("Fifo", message_group=f"g{number % 5}") for number in range(20)]
        answers = await asyncio.gather(*(client.send(one) for one in sent))
        assert {answer.status.code for answer in answers} == {pb.OK}
    queues: dict[str, set[int]] = {}
    for one in await server.stored("Fifo", 20):
        queues.setdefault(one.properties["__SHARDINGKEY"], set()).add(one.stored.queue_id)
    assert set(queues) == {"g0", "g1", "g2", "g3", "g4"}
    assert all(len(ids) == 1 for ids in queues.values()), queues


async def test_a_message_of_another_type_than_its_topic_is_refused(server: Server) -> None:
    later = {"seconds": 4_000_000_000}
    async with server.client() as client:
        for topic, system in (
            ("Normal", {"message_group": "g"}), ("Fifo", {}), ("Half", {}), ("Delay", {}),
            ("Normal", {"message_type": pb.TRANSACTION}),
        ):  # fmt: skip
            answer = await client.send(message(topic, **system))
            assert answer.status.code == pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, topic
        assert (await client.send(message("Delay", delivery_timestamp=later))).status.code == pb.ILLEGAL_DELIVERY_TIME
        assert (await client.send(message("None"))).status.code == pb.TOPIC_NOT_FOUND
        assert (await client.send()).status.code == pb.MESSAGE_CORRUPTED
        answer = await client.send(message("Mixed"), message("Mixed", message_type=pb.TRANSACTION))
        assert answer.status.code == pb.OK, "what cannot be a batch is sent one by one"
        assert [bool(entry.transaction_id) for entry in answer.entries] == [False, True]


async def test_a_delayed_message_can_be_recalled_until_it_was_delivered(server: Server) -> None:
    async with server.client() as client:
        answer = await client.send(message("Delay", delivery_timestamp={"seconds": int(time.time()) + 3600}))
        entry = answer.entries[0]
        assert entry.recall_handle
        request = pb.RecallMessageRequest(topic=resource("Delay"), recall_handle=entry.recall_handle)
        found = await client.call("RecallMessage", request)
        assert (found.status.code, found.message_id) == (pb.OK, entry.message_id)
        for topic, text in (("Delay", "nonsense"), ("Mixed", entry.recall_handle)):
            request = pb.RecallMessageRequest(topic=resource(topic), recall_handle=text)
            assert (await client.call("RecallMessage", request)).status.code == pb.BAD_REQUEST


def ending(entry: Any, resolution: int, source: int = pb.SOURCE_CLIENT, topic: str = "Half") -> Any:
    return pb.EndTransactionRequest(
        topic=resource(topic),
        message_id=entry.message_id,
        transaction_id=entry.transaction_id,
        resolution=resolution,
        source=source,
    )


async def test_a_transaction_ends_once(server: Server) -> None:
    async with server.client() as client:
        entries = [(await client.send(message("Half", message_type=pb.TRANSACTION))).entries[0] for _ in range(3)]
        committed, rolled_back, unique = entries
        assert (await client.call("EndTransaction", ending(committed, pb.COMMIT))).status.code == pb.OK
        assert (await client.call("EndTransaction", ending(committed, pb.COMMIT))).status.code == pb.OK, "repeated"
        assert (await client.call("EndTransaction", ending(committed, pb.ROLLBACK))).status.code != pb.OK
        assert (await client.call("EndTransaction", ending(rolled_back, pb.ROLLBACK))).status.code == pb.OK
        unique.transaction_id = unique.message_id
        assert (await client.call("EndTransaction", ending(unique, pb.COMMIT))).status.code == pb.OK, "looked up"
        unique.transaction_id = "nobody's"
        assert (await client.call("EndTransaction", ending(unique, pb.COMMIT))).status.code != pb.OK
        unique.transaction_id = " "
        found = await client.call("EndTransaction", ending(unique, pb.COMMIT))
        assert found.status.code == pb.INVALID_TRANSACTION_ID
    assert {one.message_id for one in await server.stored("Half", 2)} == {committed.message_id, unique.message_id}


async def test_a_check_goes_to_another_producer_of_the_topic(server: Server) -> None:
    async with server.client() as first:
        half = message("Mixed", message_type=pb.TRANSACTION)
        entry = (await first.send(half)).entries[0]
    async with server.client() as second:
        stream = second.telemetry()
        sent = pb.Settings(client_type=pb.PRODUCER)
        sent.publishing.topics.add(name="Mixed")
        await stream.write(pb.TelemetryCommand(settings=sent))
        async with asyncio.timeout(HANG_S):
            while True:
                command = await stream.read()
                asked = command.recover_orphaned_transaction_command
                if asked.message.system_properties.message_id == entry.message_id:
                    break
        assert asked.message.body == half.body and asked.message.topic.name == "Mixed"
        assert asked.message.system_properties.message_type == pb.TRANSACTION
        entry.transaction_id = asked.transaction_id
        end = ending(entry, pb.COMMIT, pb.SOURCE_SERVER_CHECK, "Mixed")
        assert (await second.call("EndTransaction", end)).status.code == pb.OK


async def test_what_is_not_supported_says_what_to_use(server: Server) -> None:
    async with server.client() as client:
        for name in ("UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription"):
            with pytest.raises(grpc.aio.AioRpcError, match=f"{name} is not supported; ") as caught:
                await client.call(name, getattr(pb, f"{name}Request")())
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_health_and_reflection(server: Server) -> None:
    certificate = server.process.folder / "config" / "proxy-cert.pem"
    if not certificate.exists():
        pytest.skip("missing openssl; apt-get install openssl")
    async with server.client(certificate=certificate.read_bytes()) as client:  # and so TLS works
        found = await health_pb2_grpc.HealthStub(client.channel).Check(health_pb2.HealthCheckRequest())
        assert found.status == health_pb2.HealthCheckResponse.SERVING
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        info = reflection_pb2_grpc.ServerReflectionStub(client.channel).ServerReflectionInfo(iter([asked]))
        names = [service.name async for one in info for service in one.list_services_response.service]
        assert "apache.rocketmq.v2.MessagingService" in names


async def test_a_frame_that_is_too_large_ends_the_call_only(server: Server) -> None:
    async with server.client() as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.send(message("Normal", bytes(33 << 20)))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await client.send(message("Normal", bytes(5 << 20)))).status.code == pb.MESSAGE_BODY_TOO_LARGE
        work = client.channel.unary_unary("/apache.rocketmq.v2.MessagingService/SendMessage")
        with pytest.raises(grpc.aio.AioRpcError, match="no message of the protocol") as caught:
            await work(b"\xff\xff\xff", metadata=client.metadata, timeout=HANG_S)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (await client.call("Heartbeat", pb.HeartbeatRequest())).status.code == pb.OK
