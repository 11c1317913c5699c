"""A small client of the gRPC protocol, made from the descriptors that the proxy itself uses.

It sends what a test wants, also what no real client would send; RocketMQ's own clients are in tests/interop.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Self

import grpc

from gantry.proxy import messaging_pb2 as pb
from testkit.patience import HANG_S

SERVICE = "/apache.rocketmq.v2.MessagingService/"
_NUMBERS = itertools.count(1)


def resource(name: str) -> pb.Resource:
    return pb.Resource(name=name)


def message(topic: str, body: bytes = b"tea", **system: Any) -> pb.Message:
    """A message with an id of its own and these system properties."""
    found = pb.Message(topic=resource(topic), body=body)
    found.system_properties.CopyFrom(pb.SystemProperties(message_id=f"01TEST{next(_NUMBERS):08X}", **system))
    return found


class GrpcClient:
    """`async with GrpcClient(port) as client:`; one connection, one client id."""

    def __init__(
        self,
        port: int,
        client_id: str = "",
        language: str = "PYTHON",
        certificate: bytes | None = None,
        more: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.client_id = client_id or f"test@1@{next(_NUMBERS)}"
        self.metadata = (("x-mq-client-id", self.client_id), ("x-mq-language", language), *more)
        # A channel of its own: gRPC shares connections between channels to one address otherwise.
        options = [("grpc.use_local_subchannel_pool", 1)]
        if certificate is None:
            self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options)
        else:
            credentials = grpc.ssl_channel_credentials(certificate)
            self.channel = grpc.aio.secure_channel(f"localhost:{port}", credentials, options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.channel.close()

    async def call(self, name: str, request: Any, timeout_s: float = HANG_S) -> Any:
        """The answer of a unary RPC."""
        answer = getattr(pb, f"{name}Response")
        work = self.channel.unary_unary(SERVICE + name, type(request).SerializeToString, answer.FromString)
        return await work(request, metadata=self.metadata, timeout=timeout_s)

    async def send(self, *messages: pb.Message) -> Any:
        return await self.call("SendMessage", pb.SendMessageRequest(messages=messages))

    def telemetry(self) -> Any:
        """An open telemetry stream, with `read` and `write`."""
        work = self.channel.stream_stream(
            SERVICE + "Telemetry", pb.TelemetryCommand.SerializeToString, pb.TelemetryCommand.FromString
        )
        return work(metadata=self.metadata)

    def receiving(self, group: str, topic: str, timeout_s: float, broker: str = "broker-a", **fields: Any) -> Any:
        """An open call of ReceiveMessage, to be read with `async for`; a `message_queue` names its own broker."""
        request = pb.ReceiveMessageRequest(group=resource(group), **({"batch_size": 16} | fields))
        request.message_queue.topic.name = topic
        if not request.message_queue.broker.name:
            request.message_queue.broker.name = broker
        if not request.auto_renew and "invisible_duration" not in fields:
            request.invisible_duration.seconds = 60
        work = self.channel.unary_stream(
            SERVICE + "ReceiveMessage",
            pb.ReceiveMessageRequest.SerializeToString,
            pb.ReceiveMessageResponse.FromString,
        )
        return work(request, metadata=self.metadata, timeout=timeout_s)

    async def receive(self, group: str, topic: str, timeout_s: float = 8, **fields: Any) -> Received:
        """One whole answer of ReceiveMessage."""
        return Received([one async for one in self.receiving(group, topic, timeout_s, **fields)])

    async def messages(self, group: str, topic: str, count: int, **fields: Any) -> list[pb.Message]:
        """So many messages, by as many calls as that takes."""
        found: list[pb.Message] = []
        async with asyncio.timeout(HANG_S):
            while len(found) < count:
                found += (await self.receive(group, topic, **fields)).messages
        return found

    async def ack(self, group: str, topic: str, *handles: str) -> Any:
        entries = [pb.AckMessageEntry(message_id="-", receipt_handle=handle) for handle in handles]
        request = pb.AckMessageRequest(group=resource(group), topic=resource(topic), entries=entries)
        return await self.call("AckMessage", request)


class Received:
    """An answer of ReceiveMessage."""

    def __init__(self, parts: Iterable[pb.ReceiveMessageResponse]) -> None:
        self.parts = list(parts)
        self.kinds = [one.WhichOneof("content") for one in self.parts]
        self.messages = [one.message for one in self.parts if one.WhichOneof("content") == "message"]

    @property
    def code(self) -> int:
        return self.parts[0].status.code


def handle(received: pb.Message) -> str:
    return received.system_properties.receipt_handle
