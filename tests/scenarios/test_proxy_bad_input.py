"""What no client should send, to a real proxy and broker: each call is answered with a code, and the proxy goes on.

Oversized frames and bytes that are no message are in `test_proxy`, forged handles in `test_proxy_leases`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from gantry.client.admin import Admin
from gantry.proxy import messaging_pb2 as pb
from scenarios.test_proxy import HERE, Server
from scenarios.test_proxy_processes import page, proxy
from testkit.grpcclient import GrpcClient, handle, message, resource
from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.turning import until

ELSEWHERE = pb.Endpoints(scheme=99, addresses=HERE.addresses)
GROUP, UNKNOWN, FAR_S = "shop", 99, 1 << 40
HELD, CONNECTIONS, GROUPS, STEP = 10_000, 20, 20, 250
LARGE = 3 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with GantryProcess(tmp_path_factory.mktemp("bad") / "store", {"standalone.grpc_port": "0"}) as process:
        found = Server(process)
        asyncio.run(found.prepare())
        yield found
        assert process.stop() == 0
        assert "Traceback" not in process.stderr(), process.stderr()[-4000:]


def ending(**fields: Any) -> pb.EndTransactionRequest:
    return pb.EndTransactionRequest(topic=resource("Half"), transaction_id="none", **fields)


@pytest.mark.parametrize(
    ("name", "request_", "code"),
    [
        ("SendMessage", pb.SendMessageRequest(messages=[message("Normal", message_type=UNKNOWN)]), pb.BAD_REQUEST),
        ("SendMessage", pb.SendMessageRequest(messages=[message("Normal", body_encoding=UNKNOWN)]), pb.BAD_REQUEST),
        ("EndTransaction", ending(resolution=UNKNOWN), pb.BAD_REQUEST),
        ("EndTransaction", ending(resolution=pb.COMMIT, source=UNKNOWN), pb.INTERNAL_SERVER_ERROR),
        ("Heartbeat", pb.HeartbeatRequest(client_type=UNKNOWN), pb.OK),
        (
            "QueryRoute",
            pb.QueryRouteRequest(topic=resource("Normal"), endpoints=pb.Endpoints(scheme=UNKNOWN)),
            pb.ILLEGAL_ACCESS_POINT,
        ),
        ("QueryRoute", pb.QueryRouteRequest(topic=resource("Normal"), endpoints=ELSEWHERE), pb.OK),
    ],
)
async def test_an_unknown_value_of_an_enum_has_an_answer(server: Server, name: str, request_: Any, code: int) -> None:
    async with server.client() as client:
        assert (await client.call(name, request_)).status.code == code


async def test_settings_of_an_unknown_kind_of_client_are_answered(server: Server) -> None:
    async with server.client() as client:
        stream = client.telemetry()
        sent = pb.Settings(client_type=UNKNOWN, access_point=pb.Endpoints(scheme=UNKNOWN))
        sent.subscription.group.name = GROUP
        sent.subscription.subscriptions.add(topic=resource("Normal")).expression.type = UNKNOWN
        await stream.write(pb.TelemetryCommand(settings=sent))
        async with asyncio.timeout(HANG_S):
            assert (await stream.read()).settings.subscription.receive_batch_size > 0
        stream.cancel()


@pytest.mark.parametrize(
    "time", [{"seconds": -1}, {"nanos": -5}, {"seconds": FAR_S}, {"seconds": -FAR_S, "nanos": 5}]
)
async def test_an_illegal_invisible_time_is_refused(server: Server, time: dict[str, int]) -> None:
    async with server.client() as client:
        found = await client.receive(GROUP, "Normal", invisible_duration=time)
        assert (found.code, found.kinds) == (pb.ILLEGAL_INVISIBLE_TIME, ["status", "delivery_timestamp"])
        if "seconds" in time:
            request = pb.ChangeInvisibleDurationRequest(
                group=resource(GROUP), topic=resource("Normal"), receipt_handle="x", invisible_duration=time
            )
            answer = await client.call("ChangeInvisibleDuration", request)
            assert answer.status.code == pb.ILLEGAL_INVISIBLE_TIME


@pytest.mark.parametrize(
    ("system", "code"),
    [
        ({"delivery_timestamp": {"seconds": FAR_S}}, pb.BAD_REQUEST),
        ({"delivery_timestamp": {"seconds": -FAR_S}}, pb.BAD_REQUEST),
        ({"delivery_timestamp": {"seconds": 1, "nanos": -1}}, pb.BAD_REQUEST),
        ({"delivery_timestamp": {"seconds": -5}}, pb.ILLEGAL_DELIVERY_TIME),
        ({"delivery_timestamp": {"seconds": (1 << 33)}}, pb.ILLEGAL_DELIVERY_TIME),
        ({"born_timestamp": {"seconds": FAR_S}}, pb.BAD_REQUEST),
        (
            {"message_type": pb.TRANSACTION, "orphaned_transaction_recovery_duration": {"seconds": FAR_S}},
            pb.BAD_REQUEST,
        ),
        (
            {"message_type": pb.TRANSACTION, "orphaned_transaction_recovery_duration": {"seconds": -1}},
            pb.BAD_REQUEST,
        ),
    ],
)
async def test_an_illegal_time_of_a_message_is_refused(server: Server, system: dict[str, Any], code: int) -> None:
    async with server.client() as client:
        answer = await client.send(message("Mixed", **system))
        assert answer.status.code == code, answer.status


@pytest.mark.parametrize("time", [{"seconds": -FAR_S}, {"seconds": FAR_S}, {"nanos": -1}])
async def test_a_polling_time_beyond_all_measure_is_cut_to_the_bounds(server: Server, time: dict[str, int]) -> None:
    async with server.client() as client:
        found = await client.receive("nobody", "Delay", timeout_s=6, long_polling_timeout=time)
        assert found.code == pb.MESSAGE_NOT_FOUND


async def test_metadata_that_are_too_large_end_the_call_only(server: Server) -> None:
    async with server.client(more=[("x-mq-namespace", "n" * (20 << 10))]) as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.call("Heartbeat", pb.HeartbeatRequest())
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    async with server.client() as client:
        assert (await client.call("Heartbeat", pb.HeartbeatRequest())).status.code == pb.OK


async def test_a_forged_handle_of_another_key_or_form_does_nothing(server: Server) -> None:
    async with server.client() as client:
        await client.send(message("Normal"))
        found, *_ = await client.messages("forged", "Normal", 1)
        body, _, signature = handle(found).partition(".")
        other = base64.urlsafe_b64encode(b"forged Normal 0 1 60000 1 0 broker-a 0 0").decode().rstrip("=")
        forged = [f"{other}.{signature}", f"{body}.", f".{signature}", f"{body}.{signature}.{signature}"]
        forged += ["\0", "x" * 9000]
        answer = await client.ack("forged", "Normal", *forged)
        assert {entry.status.code for entry in answer.entries} == {pb.INVALID_RECEIPT_HANDLE}
        assert (await client.ack("forged", "Normal", handle(found))).status.code == pb.OK


async def test_a_stream_that_nobody_reads_keeps_only_what_was_written(server: Server) -> None:
    """24 MiB do not fit into the windows of a connection: what was not written is there for others."""
    async with server.client() as sender:
        wanted = {(await sender.send(message("Normal", bytes(LARGE)))).entries[0].message_id for _ in range(8)}
        async with server.client() as silent:
            call = silent.receiving("unread", "Normal", 60, batch_size=32, invisible_duration={"seconds": 3600})
            await call.read()  # the status: the messages follow, and nobody reads them
            call.cancel()
        found: set[str] = set()
        async with asyncio.timeout(HANG_S):
            while not found & wanted:
                got = await sender.receive("unread", "Normal", batch_size=32)
                found |= {one.system_properties.message_id for one in got.messages}
        assert (await sender.call("Heartbeat", pb.HeartbeatRequest())).status.code == pb.OK


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_ten_thousand_held_receives_let_others_work(tmp_path: Path) -> None:
    """More than a connection to a broker takes by default, and than gRPC queues when their time is over together."""
    asyncio.get_running_loop().set_debug(False)  # it keeps a stack for each of the client's tasks and callbacks
    with GantryProcess(tmp_path / "store") as cluster:
        nameserver = "{}:{}".format(*cluster.addresses["nameserver"])
        async with Admin(nameserver=nameserver) as admin:
            await admin.create_topic("Tea", queues=1, attributes={"message.type": "NORMAL"})
            for number in range(GROUPS):
                await admin.create_group(f"g{number}")
        with proxy(tmp_path, nameserver, "--http-port", "0") as process:
            port, http = process.addresses["grpc"][1], process.addresses["http"][1]
            clients = [GrpcClient(port) for _ in range(CONNECTIONS)]
            got: list[str] = []
            holding: list[asyncio.Task[None]] = []
            try:
                async with asyncio.timeout(2 * HANG_S):
                    while len(holding) < HELD:
                        numbers = range(len(holding), len(holding) + STEP)
                        calls = [hold(clients[one % CONNECTIONS], f"g{one % GROUPS}", got) for one in numbers]
                        holding += [asyncio.create_task(call) for call in calls]
                        while await held(http) < len(holding) * 0.9:
                            assert not [task for task in holding if task.done()]
                            await asyncio.sleep(0.1)
                async with GrpcClient(port) as other:
                    assert (await other.call("Heartbeat", pb.HeartbeatRequest())).status.code == pb.OK
                    assert (await other.send(message("Tea"))).status.code == pb.OK
                await until(lambda: len(set(got)) == GROUPS)
                assert sorted(got) == sorted(set(got)), "one call of each group has it"
            finally:
                for task in holding:
                    task.cancel()
                await asyncio.gather(*holding, return_exceptions=True)
                await asyncio.gather(*(client.channel.close() for client in clients))
            assert process.stop() == 0
            assert "Traceback" not in process.stderr(), process.stderr()[-4000:]


async def hold(client: GrpcClient, group: str, got: list[str]) -> None:
    """Receive again and again, as a real client does."""
    while True:
        found = await client.receive(group, "Tea", timeout_s=HANG_S, invisible_duration={"seconds": 3600})
        assert found.code in (pb.OK, pb.MESSAGE_NOT_FOUND), found.parts[0]
        got += [group for _ in found.messages]


async def held(port: int) -> int:
    text = await asyncio.to_thread(page, port, "metrics")
    (line,) = [line for line in text.splitlines() if line.startswith("gantry_proxy_receives_held ")]
    return int(float(line.split()[1]))
