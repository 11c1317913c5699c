"""Proxies as processes: several in front of one broker, workers on one port, their ends."""

from __future__ import annotations

import asyncio
import os
import re
import selectors
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from gantry.client.admin import Admin
from gantry.proxy import messaging_pb2 as pb
from testkit.grpcclient import GrpcClient, handle, message, resource
from testkit.patience import HANG_S
from testkit.process import GantryProcess, children_of
from testkit.turning import until

GROUP = "shop"
KEYS = "0123456789abcdef0123456789abcdef\n"


@pytest.fixture(scope="module")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster without a proxy, with a topic and a group."""
    with GantryProcess(tmp_path_factory.mktemp("cluster") / "store") as process:
        address = "{}:{}".format(*process.addresses["nameserver"])
        assert "grpc" not in process.addresses, "grpc_port is -1"

        async def make() -> None:
            async with Admin(nameserver=address) as admin:
                for topic, kind in (("Tea", "NORMAL"), ("Half", "TRANSACTION")):
                    await admin.create_topic(topic, queues=1, attributes={"message.type": kind})
                await admin.create_group(GROUP)

        asyncio.run(make())
        yield address


def proxy(folder: Path, nameserver: str, *flags: str) -> GantryProcess:
    """A process of `gantry proxy` with these keys of handles."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = folder / "keys"
    if not keys.exists():
        keys.write_text(KEYS)
    command = [sys.executable, "-m", "gantry.cli.main", "proxy", "--namesrv", nameserver, "--bind", "127.0.0.1"]
    command += ["--grpc-port", "0", "--handle-key-file", str(keys), *flags]
    return GantryProcess(folder / "proxy", command=command)


async def received(client: GrpcClient, topic: str) -> pb.Message:
    """One message that is sent and received."""
    assert (await client.send(message(topic))).status.code == pb.OK
    (found,) = await client.messages(GROUP, topic, 1)
    return found


async def test_another_proxy_takes_the_handles_of_one_that_was_killed(tmp_path: Path, nameserver: str) -> None:
    with proxy(tmp_path, nameserver, "--http-port", "-1") as first:
        async with GrpcClient(first.addresses["grpc"][1]) as client:
            found = await received(client, "Tea")
            half = (await client.send(message("Half", message_type=pb.TRANSACTION))).entries[0]
        first.kill()
    with proxy(tmp_path, nameserver, "--http-port", "-1") as second:
        async with GrpcClient(second.addresses["grpc"][1]) as client:
            assert (await client.ack(GROUP, "Tea", handle(found))).status.code == pb.OK
            end = pb.EndTransactionRequest(
                topic=resource("Half"), transaction_id=half.transaction_id, resolution=pb.COMMIT
            )
            assert (await client.call("EndTransaction", end)).status.code == pb.OK
            other = await client.ack(GROUP, "Tea", handle(found)[:-2] + "AA")
            assert other.status.code == pb.INVALID_RECEIPT_HANDLE


async def test_an_orderly_end_answers_what_waits_and_keeps_leases(tmp_path: Path, nameserver: str) -> None:
    with proxy(tmp_path, nameserver, "--http-port", "-1") as process:
        async with GrpcClient(process.addresses["grpc"][1]) as client:
            found = await received(client, "Tea")
            stream = client.telemetry()
            sent = pb.Settings(client_type=pb.PRODUCER)
            sent.publishing.topics.add(name="Tea")
            await stream.write(pb.TelemetryCommand(settings=sent))
            await stream.read()
            await stream.read()
            os.kill(process.popen.pid, signal.SIGTERM)
            async with asyncio.timeout(HANG_S):
                assert not await stream.read(), "the stream ends in order"
        assert await asyncio.to_thread(process.wait) == 0
        assert "Traceback" not in process.stderr()
    with proxy(tmp_path, nameserver, "--http-port", "-1") as process:
        async with GrpcClient(process.addresses["grpc"][1]) as client:
            assert (await client.ack(GROUP, "Tea", handle(found))).status.code == pb.OK


@pytest.mark.shows("proxy --workers")
async def test_workers_share_a_port_and_end_together(tmp_path: Path, nameserver: str) -> None:
    with proxy(tmp_path, nameserver, "--workers", "2", "--http-port", "0") as process:
        port = process.addresses["grpc"][1]
        clients = [GrpcClient(port) for _ in range(8)]
        try:
            answers = [client.call("Heartbeat", pb.HeartbeatRequest()) for client in clients]
            assert {answer.status.code for answer in await asyncio.gather(*answers)} == {pb.OK}
            found = await received(clients[0], "Tea")
            assert (await clients[1].ack(GROUP, "Tea", handle(found))).status.code == pb.OK
        finally:
            for client in clients:
                await client.channel.close()
        workers = children_of(process.popen.pid)
        assert len(workers) == 2
        http = process.addresses["http"][1]
        assert await page_with(http, "readyz", 200) == "2 workers\n"
        text = await asyncio.to_thread(page, http, "metrics")
        assert text.count("# TYPE gantry_proxy_clients gauge") == 1
        found_at = re.findall(r'^rocketmq_proxy_up\{worker="(\d)",node_type="proxy".* 1$', text, re.MULTILINE)
        assert found_at == ["0", "1"]
        sends = re.findall(r'^gantry_proxy_requests_total\{worker="\d",rpc="SendMessage",code="OK"\} 1$', text, re.M)
        assert len(sends) == 1, "one of them has answered it"
        os.kill(workers[0], signal.SIGSTOP)
        assert "worker " in await page_with(http, "readyz", 503)
        text = await asyncio.to_thread(page, http, "metrics")
        assert len(re.findall(r'^gantry_proxy_ready\{worker="\d"\} 1$', text, re.MULTILINE)) == 1
        assert len(re.findall(r'^gantry_proxy_ready\{worker="\d"\} 0$', text, re.MULTILINE)) == 1
        await page_with(http, "healthz", 200)
        os.kill(workers[0], signal.SIGCONT)
        await page_with(http, "readyz", 200)
        os.kill(workers[0], signal.SIGKILL)
        assert await asyncio.to_thread(process.wait) == 1
        assert not await asyncio.to_thread(alive, workers)


@pytest.mark.shows("proxy --namesrv", "proxy --bind", "proxy --grpc-port", "proxy --advertise")
@pytest.mark.shows("proxy --tls-self-signed", "proxy --tls-cert", "proxy --tls-key", "proxy --http-port")
@pytest.mark.shows("proxy --handle-key-file")
async def test_a_proxy_as_an_operator_starts_it(tmp_path: Path, nameserver: str) -> None:
    (tmp_path / "keys").write_text(KEYS)
    gantry = [sys.executable, "-m", "gantry.cli.main", "proxy", "--namesrv", nameserver, "--bind", "127.0.0.1"]
    gantry += ["--grpc-port", "0", "--http-port", "-1", "--handle-key-file", str(tmp_path / "keys")]
    made = GantryProcess(tmp_path / "first", command=[*gantry, "--tls-self-signed", str(tmp_path)])
    with made as process:
        certificate = tmp_path / "proxy-cert.pem"
        if not certificate.exists():
            pytest.skip("missing openssl; apt-get install openssl")
        assert process.stop() == 0
    given = ["--tls-cert", str(certificate), "--tls-key", str(tmp_path / "proxy-key.pem"), "--advertise", "shop:80"]
    with GantryProcess(tmp_path / "second", command=[*gantry, *given]) as process:
        async with GrpcClient(process.addresses["grpc"][1], certificate=certificate.read_bytes()) as client:
            asked = pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="127.0.0.1", port=1)])
            found = await client.call("QueryRoute", pb.QueryRouteRequest(topic=resource("Tea"), endpoints=asked))
            (address,) = found.message_queues[0].broker.endpoints.addresses
            assert (address.host, address.port) == ("shop", 80)


@pytest.mark.parametrize("flags", [["--tls-cert", "none"], ["--handle-key-file", "none"], ["--workers", "0"]])
def test_a_proxy_that_cannot_serve_says_why(tmp_path: Path, nameserver: str, flags: list[str]) -> None:
    command = [sys.executable, "-m", "gantry.cli.main", "proxy", "--namesrv", nameserver, "--grpc-port", "0", *flags]
    with GantryProcess(tmp_path / "proxy", command=command, wait=False) as process:
        assert process.wait() == 2
        assert flags[0] in process.stderr() or flags[1] in process.stderr()
        assert "Traceback" not in process.stderr()


async def test_a_killed_proxy_of_standalone_comes_back_on_its_port(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    command = [sys.executable, "-m", "gantry.cli.main", "standalone", "--data", str(folder), "--grpc-port", "0"]
    with GantryProcess(folder, command=command) as process:
        port = process.addresses["grpc"][1]
        async with Admin(nameserver="{}:{}".format(*process.addresses["nameserver"])) as admin:
            await admin.create_topic("Tea", queues=1, attributes={"message.type": "NORMAL"})
            await admin.create_group(GROUP)
        async with GrpcClient(port) as client:
            found = await received(client, "Tea")
        (former,) = children_of(process.popen.pid)
        os.kill(former, signal.SIGKILL)
        async with asyncio.timeout(HANG_S), GrpcClient(port) as client:
            while True:
                try:
                    answer = await client.ack(GROUP, "Tea", handle(found))
                    break
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.1)
            assert answer.status.code == pb.OK, "a lease is the broker's, and the keys of handles are kept"
        (present,) = children_of(process.popen.pid)
        assert present != former
        assert process.popen.poll() is None
        assert "the proxy ended with -9; it is started again in 0.5 s, the broker goes on" in process.stderr()
        assert process.stop() == 0
        assert not await asyncio.to_thread(alive, [present])


@pytest.mark.shows("standalone --grpc-port")
async def test_a_parents_death_ends_its_proxy(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    command = [sys.executable, "-m", "gantry.cli.main", "standalone", "--data", str(folder), "--grpc-port", "0"]
    command += ["--queues-port", "0"]
    with GantryProcess(folder, command=command) as process:
        workers = children_of(process.popen.pid)
        assert len(workers) == 2, "the proxy and HTTP queues"
        process.kill()
        assert not await asyncio.to_thread(alive, workers)


async def test_metrics_have_the_proxys_name_of_rocketmq_and_count_answers(tmp_path: Path, nameserver: str) -> None:
    with proxy(tmp_path, nameserver, "--http-port", "0") as process:
        async with GrpcClient(process.addresses["grpc"][1]) as client:
            await client.call("Heartbeat", pb.HeartbeatRequest())
            await client.send()
            text = await asyncio.to_thread(page, process.addresses["http"][1], "metrics")
            labels = f'node_type="proxy",proxy_mode="cluster",cluster="DefaultCluster",node_id="{socket.gethostname()}"'
            assert f"rocketmq_proxy_up{{{labels}}} 1" in text
            assert 'gantry_proxy_requests_total{rpc="Heartbeat",code="OK"} 1' in text
            assert 'gantry_proxy_requests_total{rpc="SendMessage",code="MESSAGE_CORRUPTED"} 1' in text
            assert "gantry_proxy_connections 1" in text
            assert "gantry_proxy_ready 1" in text
            assert "1 clients" in await asyncio.to_thread(page, process.addresses["http"][1], "healthz")


async def test_a_proxy_is_ready_while_a_broker_answers_and_lives_without(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with GantryProcess(store) as cluster:
        address = "{}:{}".format(*cluster.addresses["nameserver"])
        ports = [str(cluster.addresses[name][1]) for name in ("nameserver", "broker")]
        with proxy(tmp_path, address, "--http-port", "0") as process:
            http = process.addresses["http"][1]
            await page_with(http, "readyz", 200)
            cluster.kill()
            assert "no broker can be reached: " in await page_with(http, "readyz", 503)
            assert "clients" in await page_with(http, "healthz", 200)
            assert "gantry_proxy_ready 0" in await asyncio.to_thread(page, http, "metrics")
            command = [sys.executable, "-m", "gantry.cli.main", "standalone", "--data", str(store), "--grpc-port", "-1"]
            command += ["--nameserver-port", ports[0], "--broker-port", ports[1]]
            with GantryProcess(store, command=command):
                await page_with(http, "readyz", 200)
            assert process.popen.poll() is None


async def page_with(port: int, name: str, wanted: int) -> str:
    """The text of a page when it has this HTTP status."""
    seen: list[tuple[int, str]] = []

    def has_it() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=HANG_S) as answer:
                seen.append((int(answer.status), str(answer.read().decode())))
        except urllib.error.HTTPError as error:
            seen.append((error.code, error.read().decode()))
        return seen[-1][0] == wanted

    await until(has_it)
    return seen[-1][1]


def page(port: int, name: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=HANG_S) as answer:
        return str(answer.read().decode())


def alive(processes: list[int]) -> list[int]:
    """Those of them that do not end."""
    deadline = time.monotonic() + HANG_S
    left = []
    for one in processes:
        try:
            descriptor = os.pidfd_open(one)
        except ProcessLookupError:
            continue
        with selectors.DefaultSelector() as ends:
            ends.register(descriptor, selectors.EVENT_READ)
            left += [] if ends.select(max(0.0, deadline - time.monotonic())) else [one]
        os.close(descriptor)
    return left
