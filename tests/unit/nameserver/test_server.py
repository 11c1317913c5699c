"""A name server on a real socket: connections that close, key-values that stay."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gantry.errors import ConfigError
from gantry.leaves import frames
from gantry.nameserver.readiness import SETTLE_MS
from gantry.nameserver.server import NameServer
from gantry.nameserver.settings import NameServerSettings
from gantry.transport.client import RemotingClient
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.patience import HANG_S
from testkit.simclock import SimClock

BODY = (
    b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1},'
    b'"topicConfigTable":{"T":{"topicName":"T"},"U":{"topicName":"U"}}}}'
)
BROKER = {
    "brokerName": "b-a",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "C",
    "brokerId": "0",
    "haServerAddr": "10.0.0.1:10912",
}


def settings(kv_path: Path | None = None, http_port: int | None = None) -> NameServerSettings:
    return NameServerSettings("127.0.0.1", 0, "127.0.0.1", http_port, kv_path)


async def ask(
    client: RemotingClient, server: NameServer, code: int, ext: dict[str, str], body: bytes = b""
) -> frames.Command:
    return await client.invoke(f"127.0.0.1:{server.port}", frames.Command(code, ext=ext, body=body), HANG_S)


async def test_a_broker_is_gone_the_moment_its_connection_closes() -> None:
    async with asyncio.timeout(HANG_S):
        server = NameServer(settings())
        await server.start()
        broker, client = RemotingClient(), RemotingClient()
        await ask(broker, server, RequestCode.REGISTER_BROKER, BROKER, BODY)
        assert (await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).code == 0
        await broker.close()
        while (await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).code == 0:
            pass
        assert server.table.live_count == 0
        await client.close()
        await server.stop()


async def test_before_a_broker_has_come_no_topic_is_denied_and_no_probe_says_ready() -> None:
    async with asyncio.timeout(HANG_S):
        clock = SimClock()
        server = NameServer(replace(settings(http_port=0), awaits_brokers=True), clock)
        await server.start()
        broker, client = RemotingClient(), RemotingClient()
        denied = await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "X"})
        assert denied.code == ResponseCode.SYSTEM_ERROR and "not ready" in (denied.remark or "")
        assert await probes(server) == (200, 503)
        await ask(broker, server, RequestCode.REGISTER_BROKER, BROKER, BODY)
        assert (await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).code == 0
        clock.advance(SETTLE_MS)
        denied = await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "X"})
        assert denied.code == ResponseCode.TOPIC_NOT_EXIST and await probes(server) == (200, 200)
        await broker.close()
        await client.close()
        await server.stop()


async def probes(server: NameServer) -> tuple[int, int]:
    found = []
    for path in ("healthz", "readyz"):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
        writer.write(f"GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        found.append(int((await reader.readline()).split()[1]))
        writer.close()
        await writer.wait_closed()
    return found[0], found[1]


def test_key_values_outlive_the_process_if_a_file_is_configured(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    where = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}

    async def put() -> None:
        server = NameServer(settings(path))
        await server.start()
        client = RemotingClient()
        await ask(client, server, RequestCode.PUT_KV_CONFIG, {**where, "value": "b-a:4"})
        await client.close()
        await server.stop()

    async def get() -> frames.Command:
        server = NameServer(settings(path))
        await server.start()
        client = RemotingClient()
        answer = await ask(client, server, RequestCode.GET_KV_CONFIG, where)
        await client.close()
        await server.stop()
        return answer

    asyncio.run(put())
    assert asyncio.run(get()).ext == {"value": "b-a:4"}
    assert [file.name for file in tmp_path.iterdir()] == ["kvConfig.json"]


async def test_a_damaged_key_value_file_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{"configTable":3}')
    with pytest.raises(ConfigError, match="kvConfig"):
        await NameServer(settings(path)).start()


async def test_metrics_count_what_is_registered_and_asked() -> None:
    server = NameServer(settings())
    await server.start()
    client = RemotingClient()
    await ask(client, server, RequestCode.REGISTER_BROKER, BROKER, BODY)
    await ask(client, server, RequestCode.GET_BROKER_RUNTIME_INFO, {})
    text = server.metrics().decode()
    assert "gantry_nameserver_brokers 1\n" in text
    assert "gantry_nameserver_topics 2\n" in text
    assert 'gantry_nameserver_requests_total{code="103"} 1\n' in text
    assert 'gantry_nameserver_requests_total{code="other"} 1\n' in text
    await client.close()
    await server.stop()


async def test_a_failed_start_can_be_stopped() -> None:
    first = NameServer(settings())
    await first.start()
    second = NameServer(NameServerSettings("127.0.0.1", first.port, http_port=None))
    with pytest.raises(ConfigError, match=str(first.port)):
        await second.start()
    await second.stop()
    await first.stop()


async def test_a_file_of_key_values_that_cannot_be_made_is_found_at_the_start(tmp_path: Path) -> None:
    server = NameServer(settings(tmp_path / "missing" / "kvConfig.json"))
    with pytest.raises(ConfigError, match=r"missing/kvConfig\.json: key-values cannot be kept .* make its folder"):
        await server.start()
    await server.stop()
