"""Long requests under way, without gRPC's server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gantry.proxy import messaging_pb2 as pb
from gantry.proxy import service as services
from gantry.proxy.clients import KnownClients
from gantry.proxy.service import SERVICE, Service
from testkit.turning import until


class Broker:
    """Takes sends, and answers none before it is told to."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.begun = 0

    async def send(self, request: pb.SendMessageRequest, caller: object, within_s: float) -> pb.SendMessageResponse:
        self.begun += 1
        await self.answers.wait()
        return pb.SendMessageResponse(status=pb.Status(code=pb.OK))


class Context:
    """One call of a client at this address."""

    def __init__(self, peer: str) -> None:
        self._peer = peer

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("x-mq-client-id", self._peer),)

    def peer(self) -> str:
        return self._peer

    def time_remaining(self) -> None:
        return None


async def test_long_requests_under_way_are_bounded_and_shared_by_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "LONG_BYTES_MAX", 400_000)
    broker, nothing = Broker(), cast(Any, SimpleNamespace(ack=None, change=None, forward=None))
    service = Service(nothing, KnownClients(), nothing, cast(Any, broker), nothing, (nothing, nothing, nothing), None)
    details = SimpleNamespace(method=f"/{SERVICE}/SendMessage", invocation_metadata=())
    send = cast(Any, service.handler()).service(details).unary_unary

    def call(peer: str, size: int) -> asyncio.Task[pb.SendMessageResponse]:
        request = pb.SendMessageRequest(messages=[pb.Message(body=bytes(size))])
        return asyncio.ensure_future(send(request, Context(peer)))

    held = [call("10.0.0.1:1", 100_000), call("10.0.0.1:2", 50_000)]
    await until(lambda: broker.begun == 2)
    refused = await call("10.0.0.1:3", 120_000)
    assert refused.status.code == pb.TOO_MANY_REQUESTS and broker.begun == 2
    held += [call("10.0.0.1:3", 100), call("10.0.0.2:1", 100_000)]
    await until(lambda: broker.begun == 4)
    broker.answers.set()
    assert {(await one).status.code for one in held} == {pb.OK}
    assert (await call("10.0.0.1:3", 120_000)).status.code == pb.OK
    assert service._long.taken == 0
