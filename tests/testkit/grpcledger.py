"""A client of the gRPC proxy for a pod, with the stubs of our image and nothing else of ours.

    python3 - ADDRESS send TOPIC PREFIX FILE      sends PREFIX-1, PREFIX-2, ... one at a time, until it is ended; a body
                                                  that is not acknowledged is sent again
    python3 - ADDRESS,... receive TOPIC GROUP S   receives from the first address, acknowledges at the last one, until
                                                  nothing has come for S seconds; a line for each body that it got

FILE gets a line `body,milliseconds,broker,place` for each acknowledged message, like the ledgers of `testkit.ledger`.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

grpc: Any = importlib.import_module("grpc")
pb: Any = importlib.import_module("gantry.proxy.stubs.messaging_pb2")
SERVICE = "/apache.rocketmq.v2.MessagingService/"
CALL_S, WAIT_S, AGAIN_S = 5.0, 5, 0.1
OK, NOTHING = 20000, 40404
METADATA = (("x-mq-client-id", f"pod@{uuid.uuid4().hex}"), ("x-mq-language", "PYTHON"))
# A connection of its own for each channel, so two of them may be of two proxies behind one Service.
OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 1000))


class Proxy:
    """One channel."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=OPTIONS)

    def call(self, name: str, request: Any) -> Any:
        """The answer of a unary call."""
        answer = getattr(pb, f"{name}Response").FromString
        method = self._channel.unary_unary(SERVICE + name, type(request).SerializeToString, answer)
        return method(request, timeout=CALL_S, metadata=METADATA)

    def received(self, request: Any) -> list[Any]:
        """The messages of one call."""
        answer = pb.ReceiveMessageResponse.FromString
        method = self._channel.unary_stream(SERVICE + "ReceiveMessage", type(request).SerializeToString, answer)
        parts = list(method(request, timeout=WAIT_S + CALL_S, metadata=METADATA))
        bad = [each.status for each in parts if each.HasField("status") and each.status.code not in (OK, NOTHING)]
        if bad:
            print(f"receive: {bad[0]}", file=sys.stderr)
        return [each.message for each in parts if each.HasField("message")]


def send(address: str, topic: str, prefix: str, book: str) -> None:
    """Send without an end."""
    proxy, number, pause = Proxy(address), 0, threading.Event()
    with Path(book).open("a", buffering=1, encoding="utf-8") as ledger:
        while True:
            number += 1
            body, identity = f"{prefix}-{number}", uuid.uuid4().hex.upper()
            while not is_sent(proxy, topic, body, identity):
                pause.wait(AGAIN_S)
            ledger.write(f"{body},{int(time.time() * 1000)},proxy,0\n")


def is_sent(proxy: Proxy, topic: str, body: str, identity: str) -> bool:
    system = pb.SystemProperties(message_id=identity, message_type=pb.NORMAL, body_encoding=pb.IDENTITY)
    system.born_timestamp.GetCurrentTime()
    message = pb.Message(topic=pb.Resource(name=topic), system_properties=system, body=body.encode())
    try:
        return bool(proxy.call("SendMessage", pb.SendMessageRequest(messages=[message])).status.code == OK)
    except grpc.RpcError as error:
        print(f"{body}: {error.code()}", file=sys.stderr)
        return False


def receive(addresses: list[str], topic: str, group: str, idle_s: float) -> None:
    """Receive until nothing comes, from every broker of the topic."""
    first, last = Proxy(addresses[0]), Proxy(addresses[-1])
    where = pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="127.0.0.1", port=8081)])
    route = first.call("QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name=topic), endpoints=where))
    brokers = {each.broker.name: each for each in route.message_queues}
    names, since = (pb.Resource(name=group), pb.Resource(name=topic)), time.monotonic()
    while time.monotonic() - since < idle_s:
        for queue in brokers.values():
            request = pb.ReceiveMessageRequest(group=names[0], message_queue=queue, batch_size=32)
            request.filter_expression.expression = "*"
            request.invisible_duration.FromSeconds(30)
            request.long_polling_timeout.FromSeconds(WAIT_S)
            for message in first.received(request):
                entry = pb.AckMessageEntry(
                    message_id=message.system_properties.message_id,
                    receipt_handle=message.system_properties.receipt_handle,
                )
                done = last.call("AckMessage", pb.AckMessageRequest(group=names[0], topic=names[1], entries=[entry]))
                if done.status.code != OK:
                    sys.exit(f"{message.body!r} was not acknowledged: {done}")
                print(message.body.decode(), flush=True)
                since = time.monotonic()


if __name__ == "__main__":
    where, what, topic, *rest = sys.argv[1:]
    if what == "send":
        send(where, topic, rest[0], rest[1])
    else:
        receive(where.split(","), topic, rest[0], float(rest[1]))
