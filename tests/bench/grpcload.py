"""Clients of the proxy as RocketMQ's SDKs are: one message a call.  A process of its own, for `proxies.py`.

    python grpcload.py --port P --mode send|consume|echo|streams [--seconds S] [--channels C] [--window W] [--rate R]
        [--topic T] [--group G] [--run N] [--count N]

send     SendMessage with one message of 1 KiB; every answer has to be OK
consume  ReceiveMessage of one message, then its AckMessage: two calls; each body is compared, each message comes once
echo     the same bytes as send to a bare server (`grpcecho.py`)
streams  --count telemetry streams on --channels connections, each with its settings answered; then idle until a line
         comes on stdin.  Written as plain HTTP/2 frames: ten thousand of gRPC's channels would need more memory here
         than the proxy does there

It prints `begin` when it is warm, and one line of JSON at the end: calls, seconds, quantiles in microseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gantry.proxy import messaging_pb2 as pb
from testkit.grpcclient import GrpcClient, handle, resource

BODY = bytes(range(256)) * 4
_WARMUP_S = 1.0
_CALL_S = 20.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING = 0, 1, 4, 6
_END_HEADERS, _ACK = 4, 1

Call = Callable[[], Awaitable[int]]


class _Numbers:
    """Latencies since the measurement began, and its calls."""

    def __init__(self) -> None:
        self.is_measuring = False
        self.calls = 0
        self.took_us: list[float] = []


async def _work(call: Call, numbers: _Numbers, until_s: float, pause_s: float) -> None:
    while (begun := time.monotonic()) < until_s:
        count = await call()
        if numbers.is_measuring:
            numbers.calls += count
            numbers.took_us.append((time.monotonic() - begun) * 1e6)
        if pause_s:
            await asyncio.sleep(max(0.0, begun + pause_s - time.monotonic()))


def _sends(client: GrpcClient, topic: str, run: int) -> Call:
    serials = itertools.count()

    async def call() -> int:
        one = pb.Message(topic=resource(topic), body=BODY)
        one.system_properties.message_id = f"01{id(client) & 0xFFFFFFFFFF:010X}{run:08X}{next(serials):012X}"
        one.system_properties.message_type = pb.NORMAL
        answer = await client.call("SendMessage", pb.SendMessageRequest(messages=[one]), _CALL_S)
        if answer.status.code != pb.OK:
            raise SystemExit(f"a send was answered with {answer.status}")
        return 1

    return call


def _consumes(client: GrpcClient, topic: str, group: str, seen: set[str]) -> Call:
    async def call() -> int:
        received = await client.receive(group, topic, _CALL_S, batch_size=1)
        if received.code == pb.MESSAGE_NOT_FOUND:
            return 1  # a call as well; Apache's proxy asks one queue
        if len(received.messages) != 1:
            raise SystemExit(f"a receive brought {len(received.messages)} messages: {received.parts[:1]}")
        (found,) = received.messages
        message_id = found.system_properties.message_id
        if found.body != BODY or message_id in seen:
            raise SystemExit(f"message {message_id} has another body, or came twice")
        seen.add(message_id)
        answer = await client.ack(group, topic, handle(found))
        if answer.status.code != pb.OK:
            raise SystemExit(f"an acknowledgement was answered with {answer.status}")
        return 2

    return call


def _echoes(client: GrpcClient) -> Call:
    request = pb.SendMessageRequest(messages=[pb.Message(topic=resource("Echo"), body=BODY)]).SerializeToString()
    work = client.channel.unary_unary("/bench.Echo/Echo", None, None)

    async def call() -> int:
        answer = await work(request, metadata=client.metadata, timeout=_CALL_S)
        assert answer == b"ok"
        return 1

    return call


async def _introduced(client: GrpcClient, options: argparse.Namespace) -> Any:
    """The telemetry stream of a client, with its settings answered."""
    command = pb.TelemetryCommand()
    if options.mode == "send":
        command.settings.client_type = pb.PRODUCER
        command.settings.publishing.topics.add().name = options.topic
    else:
        command.settings.client_type = pb.SIMPLE_CONSUMER
        command.settings.subscription.group.name = options.group
        wanted = command.settings.subscription.subscriptions.add()
        wanted.topic.name, wanted.expression.expression, wanted.expression.type = options.topic, "*", pb.TAG
    stream = client.telemetry()
    await stream.write(command)
    async with asyncio.timeout(_CALL_S):
        answer = await stream.read()
    if answer.WhichOneof("command") != "settings":
        raise SystemExit(f"settings were answered with {answer}")
    return stream


async def load(options: argparse.Namespace) -> None:
    """Call for the given time, from all channels."""
    seen: set[str] = set()
    clients = [GrpcClient(options.port, f"load@{options.run}@{number}") for number in range(options.channels)]
    calls = {
        "send": lambda client: _sends(client, options.topic, options.run),
        "consume": lambda client: _consumes(client, options.topic, options.group, seen),
        "echo": _echoes,
    }
    streams_of = [] if options.mode == "echo" else [await _introduced(client, options) for client in clients]
    numbers = _Numbers()
    until_s = time.monotonic() + _WARMUP_S + options.seconds
    pause_s = options.channels * options.window / options.rate if options.rate else 0.0
    async with asyncio.TaskGroup() as group:
        for client in clients:
            call = calls[options.mode](client)
            for _ in range(options.window):
                group.create_task(_work(call, numbers, until_s, pause_s))
        await asyncio.sleep(_WARMUP_S)
        numbers.is_measuring, begun = True, time.monotonic()
        print("begin", flush=True)
        await asyncio.sleep(max(0.0, until_s - time.monotonic()))
        took_s, made, numbers.is_measuring = time.monotonic() - begun, numbers.calls, False
        took_us = sorted(numbers.took_us)
        quantiles = {f"p{q}_us": took_us[len(took_us) * q // 100] for q in (50, 99)} if took_us else {}
        print(json.dumps({"calls": made, "seconds": took_s, **quantiles}), flush=True)
    for stream in streams_of:
        stream.cancel()
    await asyncio.gather(*(client.channel.close() for client in clients))


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _header(name: str, value: str) -> bytes:
    """A header field without indexing, RFC 7541 6.2.2; both texts are shorter than 127 bytes."""
    return b"".join([b"\x00", bytes((len(name),)), name.encode(), bytes((len(value),)), value.encode()])


class _Idle(asyncio.Protocol):
    """A connection with telemetry streams that answers what keeps it alive."""

    def __init__(self, first: int, streams: int) -> None:
        self.answered = asyncio.get_running_loop().create_future()
        self._first, self._streams = first, streams
        self._seen: set[int] = set()
        self._data = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(_PREFACE + _frame(_SETTINGS, 0, 0))
        self._open()

    def _open(self) -> None:
        """Open one more stream; the next one follows when it was answered."""
        number = len(self._seen)
        self._transport.write(self._opened(2 * number + 1, f"idle@{self._first + number}"))

    @staticmethod
    def _opened(stream: int, client_id: str) -> bytes:
        names = {
            ":method": "POST", ":scheme": "http", ":path": "/apache.rocketmq.v2.MessagingService/Telemetry",
            ":authority": "127.0.0.1", "content-type": "application/grpc", "te": "trailers",
            "x-mq-client-id": client_id, "x-mq-language": "JAVA", "x-mq-client-version": "5.0.7",
        }  # fmt: skip
        command = pb.TelemetryCommand()
        command.settings.client_type = pb.PRODUCER
        command.settings.publishing.topics.add().name = "Idle"
        data = command.SerializeToString()
        head = _frame(_HEADERS, _END_HEADERS, stream, b"".join(_header(*pair) for pair in names.items()))
        return head + _frame(_DATA, 0, stream, b"\x00" + len(data).to_bytes(4, "big") + data)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 9 and len(self._data) >= 9 + (size := int.from_bytes(self._data[:3], "big")):
            kind, flags = self._data[3], self._data[4]
            stream, payload = int.from_bytes(self._data[5:9], "big") & 0x7FFFFFFF, bytes(self._data[9 : 9 + size])
            del self._data[: 9 + size]
            if kind in (_SETTINGS, _PING) and not flags & _ACK:
                self._transport.write(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
            elif kind == _DATA and payload and stream not in self._seen:
                self._seen.add(stream)
                if len(self._seen) < self._streams:
                    self._open()
                elif not self.answered.done():
                    self.answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answered.done():
            self.answered.set_exception(ConnectionError(f"the proxy closed an idle connection: {exc}"))
        elif sys.stdin is not None:
            print("the proxy closed an idle connection", file=sys.stderr)


async def streams(options: argparse.Namespace) -> None:
    """Open the streams, and wait."""
    loop, each = asyncio.get_running_loop(), options.count // options.channels
    begun, kept = time.monotonic(), []
    for at in range(0, options.channels, 50):
        opened = [
            await loop.create_connection(lambda first=number * each: _Idle(first, each), "127.0.0.1", options.port)
            for number in range(at, min(at + 50, options.channels))
        ]
        async with asyncio.timeout(60):
            await asyncio.gather(*(protocol.answered for _, protocol in opened))
        kept += opened
    print(json.dumps({"streams": each * len(kept), "seconds": time.monotonic() - begun}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    if any(transport.is_closing() for transport, _ in kept):
        raise SystemExit("the proxy closed idle connections")


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--mode", choices=("send", "consume", "echo", "streams"), required=True)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--window", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--topic", default="Calls")
    parser.add_argument("--group", default="callers")
    parser.add_argument("--run", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    asyncio.run(streams(options) if options.mode == "streams" else load(options))


if __name__ == "__main__":
    main()
