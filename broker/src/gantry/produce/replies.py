"""Request and reply: an answer goes from a consumer back to the one producer that asked.  RocketMQ:
`ReplyMessageProcessor`.

A request is an ordinary message.  Its properties name who asked (REPLY_TO_CLIENT, a client id) and which question it
was (CORRELATION_ID).  The answer comes as SEND_REPLY_MESSAGE (324, or 325 with one-letter fields) and is handed on to
that client, over the connection of its last heartbeat as a producer, as PUSH_REPLY_MESSAGE_TO_CLIENT (326).  The
sender of the answer gets SUCCESS when the asking client has taken it.  It gets SYSTEM_ERROR with the reason when that
client is gone, refuses, or does not answer within three seconds.

Answers are not stored.  The reply topic is never read; it exists because clients look for its route.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.clock import Clock
from gantry.errors import OutcomeUnknownError, UnreachableError
from gantry.leaves import properties
from gantry.leaves.frames import Command
from gantry.metadata.clients import Clients
from gantry.model.message import CORRELATION_ID, PUSH_REPLY_TIME, REPLY_TO_CLIENT
from gantry.transport.addresses import host_text
from gantry.wire import headers
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply, request

if TYPE_CHECKING:
    from gantry.transport.connection import Connection
    from gantry.wire.headers import Header

PUSH_TIMEOUT_S = 3.0  # RocketMQ waits 10 s, which is longer than its clients wait for a reply to 324


class ReplyCounts:
    """Counts of answers since the start, by outcome; read by the metrics."""

    __slots__ = ("delivered", "failed", "unclaimed")

    def __init__(self) -> None:
        self.delivered = 0
        self.failed = 0  # the asking client refused, or did not answer
        self.unclaimed = 0  # no client with that id is connected


@dataclass(frozen=True, slots=True)
class _Letter:
    """The names of the header's fields: in full, or by letters."""

    group: str
    topic: str
    template: str
    template_queues: str
    queue_id: str
    sys_flag: str
    born_ms: str
    flag: str
    properties: str
    reconsume_times: str
    unit_mode: str


_LONG = _Letter(
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
)
_SHORT = _Letter(*"abcdefghijk")


class ReplyHandlers:
    """Handlers of SEND_REPLY_MESSAGE: forward an answer to the client that asked."""

    def __init__(self, clients: Clients, clock: Clock, store_host: bytes) -> None:
        self.counts = ReplyCounts()
        self._clients = clients
        self._clock = clock
        self._store_host = store_host

    async def send_reply(self, connection: Connection, command: Command) -> Command:
        """Handle SEND_REPLY_MESSAGE (324) and its short form (325)."""
        names = _SHORT if command.code == RequestCode.SEND_REPLY_MESSAGE_V2 else _LONG
        header = headers.parse(command.code, command.ext)
        packed = header.text(names.properties).encode()
        wanted = properties.parse(packed)
        client_id = wanted.get(REPLY_TO_CLIENT, "")
        if not client_id or CORRELATION_ID not in wanted:
            remark = f"a reply needs the properties {REPLY_TO_CLIENT} and {CORRELATION_ID} of its request"
            return reply(command, ResponseCode.MESSAGE_ILLEGAL, remark)
        asker = self._clients.producer(client_id)
        if asker is None:
            self.counts.unclaimed += 1
            return _failed(command, f"the client {client_id[:80]} that asked is not connected to this broker")
        why = await self._push(asker, self._pushed(connection, header, names, wanted), command.body)
        if why is not None:
            self.counts.failed += 1
            return _failed(command, f"push reply message to {client_id[:80]} fail: {why}")
        self.counts.delivered += 1
        # RocketMQ: Java's client reads these of every send's answer.
        ext = {"msgId": "0", "queueId": str(header.integer(names.queue_id)), "queueOffset": "0"}
        return reply(command, ext=ext)

    async def _push(self, asker: Connection, ext: dict[str, str], body: bytes) -> str | None:
        """Push the answer; return why the asking client did not take it, None when it did."""
        question = request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext, body)
        try:
            answer = await asker.invoke(question, PUSH_TIMEOUT_S)
        except (UnreachableError, OutcomeUnknownError) as error:
            return str(error)
        return None if not answer.code else f"it answered {answer.code}: {answer.remark or 'no remark'}"

    def _pushed(
        self, connection: Connection, header: Header, names: _Letter, pairs: dict[str, str]
    ) -> dict[str, str]:
        now_ms = self._clock.now_ms()
        packed = properties.pack({**pairs, PUSH_REPLY_TIME: str(now_ms)})
        return headers.to_ext(
            producerGroup=header.text(names.group),
            topic=header.text(names.topic),
            defaultTopic=header.text(names.template),
            defaultTopicQueueNums=header.integer(names.template_queues),
            queueId=header.integer(names.queue_id),
            sysFlag=header.integer(names.sys_flag),
            bornTimestamp=header.integer(names.born_ms),
            flag=header.integer(names.flag),
            properties=packed.decode(),
            reconsumeTimes=header.integer(names.reconsume_times),
            unitMode=header.boolean(names.unit_mode),
            bornHost=host_text(connection.born_host),
            storeHost=host_text(self._store_host),
            storeTimestamp=now_ms,
        )


def _failed(command: Command, why: str) -> Command:
    return reply(command, ResponseCode.SYSTEM_ERROR, why)
