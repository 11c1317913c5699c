"""Connections of a load that one asyncio process plays: many of them, cheap, and exact about what was answered.

A `Peer` sends a request and hands its reply to anyone who asked, by opaque.  No retries and no comforts: a reply that
nobody expects, bytes that are no frame, and an end of the connection that was not asked for are errors, and go
to `on_error` as text.  `Held` keeps one pull waiting for each of its queues, as a push consumer does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from gantry.errors import RemoteProtocolError
from gantry.leaves import frames, records

SEND, PULL, HEARTBEAT, UPDATE_TOPIC, QUERY_OFFSET = 310, 11, 34, 17, 14
_FOUND, _NOTHING, _AGAIN = 0, 19, 20
# Commits the offset on the side, may wait, brings its subscription along.
_SYS_FLAG = "7"

Done = Callable[[frames.Command], None]
Queue = tuple[str, int]


class Peer(asyncio.Protocol):
    """One connection to a broker."""

    def __init__(self, on_error: Callable[[str], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self._on_error = on_error
        self._received = bytearray()
        self._waiting: dict[int, Done] = {}
        self._opaque = 0
        self._is_closing = False

    def ask(self, code: int, ext: dict[str, str], body: bytes, done: Done) -> None:
        """Send a request; `done` gets its reply."""
        self._opaque += 1
        self._waiting[self._opaque] = done
        assert self.transport is not None, "connected"
        self.transport.write(frames.encode(frames.Command(code, opaque=self._opaque, ext=ext, body=body)))

    async def call(self, code: int, ext: dict[str, str], body: bytes = b"") -> frames.Command:
        """Send a request and wait for its reply, for a minute at most."""
        future: asyncio.Future[frames.Command] = asyncio.get_running_loop().create_future()
        self.ask(code, ext, body, lambda reply: None if future.done() else future.set_result(reply))
        return await asyncio.wait_for(future, 60)

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is owed."""
        return bool(self._waiting)

    def close(self) -> None:
        """Hang up; what was asked has no answer."""
        self._is_closing = True
        self._waiting.clear()
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            used, commands = frames.decode(self._received, 0, len(self._received))
        except RemoteProtocolError as error:
            self._on_error(f"no frame: {error}")
            self.close()
            return
        del self._received[:used]
        for command in commands:
            if self._is_closing or not isinstance(command, frames.Command) or not command.is_response:
                continue  # what a broker tells its clients unasked is not looked at
            done = self._waiting.pop(command.opaque, None)
            if done is None:
                self._on_error(f"a reply to nothing: opaque {command.opaque}, code {command.code}")
            else:
                done(command)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_closing:
            self._on_error(f"the broker closed a connection: {exc}")


async def connect(port: int, on_error: Callable[[str], None]) -> Peer:
    """One more connection to 127.0.0.1."""
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_connection(lambda: Peer(on_error), "127.0.0.1", port)
    return peer


def topic_fields(topic: str, queues: int) -> dict[str, str]:
    """The header of UPDATE_AND_CREATE_TOPIC."""
    return {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues),
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip


def send_fields(topic: str, queue_id: int) -> dict[str, str]:
    """The header of a SEND_MESSAGE_V2."""
    return {
        "a": "load", "b": topic, "c": "TBW102", "d": "8", "e": str(queue_id), "f": "0", "g": "0", "h": "0", "i": "",
        "j": "0", "k": "false", "m": "false",
    }  # fmt: skip


def heartbeat(client_id: str, group: str, topics: list[str]) -> bytes:
    """The body of a push consumer's HEART_BEAT."""
    subscriptions = [
        {"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1, "classFilterMode": False}
        for topic in topics
    ]
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": subscriptions, "unitMode": False,
    }  # fmt: skip
    return json.dumps({"clientID": client_id, "producerDataSet": [], "consumerDataSet": [consumer]}).encode()


class Held:
    """The pulls of one member of a group: each of its queues has one under way, from where the last one ended."""

    def __init__(
        self,
        group: str,
        offsets: dict[Queue, int],
        suspend_ms: int,
        on_record: Callable[[records.Record], None],
        on_error: Callable[[str], None],
    ) -> None:
        self.offsets = offsets
        self._group = group
        self._suspend_ms = str(suspend_ms)
        self._on_record = on_record
        self._on_error = on_error
        self._life = 0

    def begin(self, peer: Peer) -> None:
        """Ask for every queue, on a new connection; answers on the one before do not count any more."""
        self._life += 1
        for queue in self.offsets:
            self._pull(peer, queue, self._life)

    def end(self) -> None:
        """Ask no more."""
        self._life += 1

    def _pull(self, peer: Peer, queue: Queue, life: int) -> None:
        offset = str(self.offsets[queue])
        ext = {
            "consumerGroup": self._group, "topic": queue[0], "queueId": str(queue[1]), "queueOffset": offset,
            "maxMsgNums": "32", "sysFlag": _SYS_FLAG, "commitOffset": offset, "suspendTimeoutMillis": self._suspend_ms,
            "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        peer.ask(PULL, ext, b"", lambda reply: self._answered(peer, queue, life, reply))

    def _answered(self, peer: Peer, queue: Queue, life: int, reply: frames.Command) -> None:
        if life != self._life:
            return
        if reply.code == _FOUND:
            self._take(queue, reply)
        elif reply.code not in (_NOTHING, _AGAIN):
            self._on_error(f"a pull of {queue} at {self.offsets[queue]} got {reply.code} {reply.remark}")
            return
        self._pull(peer, queue, life)

    def _take(self, queue: Queue, reply: frames.Command) -> None:
        at, body = 0, reply.body
        while at < len(body):
            record = records.view(body, at, len(body))
            if record.queue_offset != self.offsets[queue]:
                self._on_error(f"{queue}: offset {record.queue_offset} came for {self.offsets[queue]}")
            self.offsets[queue] = record.queue_offset + 1
            self._on_record(record)
            at += record.size
