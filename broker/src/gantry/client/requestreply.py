"""Request and reply: pending requests, and how a reply is built.  RocketMQ: `RequestFutureHolder`,
`MessageUtil`.

A request is an ordinary message with three more properties: a correlation id, the client id of its producer, and how
long it waits.  The consumer replies to the cluster's reply topic with the same three.  The broker sends the reply over
the connection of that producer (PUSH_REPLY_MESSAGE_TO_CLIENT).  So the producer has to be connected to every broker
that a reply may go through.

A reply reaches only the process that sent the request, and only while it waits.  It is not stored, and not sent again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.outgoing import Outgoing
from gantry.client.received import ReceivedMessage
from gantry.client.requests import questions
from gantry.errors import RefusedError, RemoteProtocolError, UnreachableError
from gantry.leaves import properties
from gantry.leaves.frames import Command, encode
from gantry.model.message import (
    CLUSTER,
    CORRELATION_ID,
    KEYS,
    MSG_TYPE,
    REPLY_TO_CLIENT,
    REPLY_TTL_MS,
    TAGS,
    Message,
    StoredMessage,
)
from gantry.model.names import reply_topic
from gantry.transport.connection import Connection
from gantry.wire import headers
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from gantry.wire.compression import decompress
from gantry.wire.headers import HeaderError

WAITING_MAX = 10_000
DEFAULT_TTL_S = 3.0


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a request."""

    body: bytes
    properties: dict[str, str]
    flag: int
    born_host: str  # "address:port" of the sender of the reply

    @property
    def tags(self) -> str:
        """Its tag; empty when it has none."""
        return self.properties.get(TAGS, "")

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(KEYS, "").split())


class Waiting:
    """The requests of one producer that have no reply yet, by correlation id."""

    def __init__(self) -> None:
        self._futures: dict[str, asyncio.Future[Reply]] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def expect(self, correlation_id: str) -> asyncio.Future[Reply]:
        """Return a future for the reply with this id; it is removed when it is done or cancelled."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._futures[correlation_id] = future
        future.add_done_callback(lambda _: self._futures.pop(correlation_id, None))
        return future

    def serve(self, connection: Connection, command: Command) -> bool:
        """Take a reply that a broker passes on. Return False for any other request."""
        if command.code != RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return False
        answer = self._take_reply(command)
        if not command.is_oneway:
            connection.write(encode(answer))
        return True

    def _take_reply(self, command: Command) -> Command:
        try:
            header = headers.parse(command.code, command.ext)
            pairs = properties.parse(header.text("properties").encode())
            body = decompress(header.integer("sysFlag"), command.body, "a reply")
        except (HeaderError, RemoteProtocolError) as error:
            return reply(command, ResponseCode.SYSTEM_ERROR, str(error))
        future = self._futures.get(pairs.get(CORRELATION_ID, ""))
        if future is None or future.done():
            return reply(command, ResponseCode.SYSTEM_ERROR, "no request waits for this reply, or not any more")
        future.set_result(Reply(body, pairs, header.integer("flag"), header.text("bornHost")))
        return reply(command)


def request_properties(correlation_id: str, client_id: str, timeout_s: float) -> dict[str, str]:
    """Return the properties that make a message a request."""
    return {
        CORRELATION_ID: correlation_id,
        REPLY_TO_CLIENT: client_id,
        REPLY_TTL_MS: str(max(1, round(timeout_s * 1000))),
    }


def answer_to(request: StoredMessage | ReceivedMessage, body: bytes, tags: str, keys: str) -> Message:
    """Return the message that replies to a request; ValueError when the message is not a request."""
    cluster = request.properties.get(CLUSTER)
    if not cluster or not all(request.properties.get(name) for name in (CORRELATION_ID, REPLY_TO_CLIENT)):
        raise ValueError(f"message {request.message_id} is not a request: no producer waits for a reply to it")
    return Message(reply_topic(cluster), body, tags, keys)


def answer_properties(request: StoredMessage | ReceivedMessage) -> dict[str, str]:
    """Return the properties that make a message the reply to a request."""
    found = {MSG_TYPE: "reply"}
    for name in (CORRELATION_ID, REPLY_TO_CLIENT, REPLY_TTL_MS):
        if name in request.properties:
            found[name] = request.properties[name]
    return found


def ttl_s(request: StoredMessage | ReceivedMessage) -> float:
    """Return for how many seconds the sender of a request waits, from its sending on."""
    text = request.properties.get(REPLY_TTL_MS, "")
    return int(text) / 1000 if text.isascii() and text.isdecimal() else DEFAULT_TTL_S


async def hand_on(
    session: Session, routes: Routes, group: str, outgoing: Outgoing, near: str, timeout_s: float
) -> None:
    """Send a reply to a broker that knows the requester: to that of group `near` first, then to each other group once.

    RefusedError or UnreachableError when none could pass it on; OutcomeUnknownError when one did not answer.
    """
    groups = {queue.broker_name: queue for queue in await routes.to_write(outgoing.topic)}
    failure: RefusedError | UnreachableError | None = None
    for queue in sorted(groups.values(), key=lambda one: one.broker_name != near):
        question = questions.send(group, outgoing, queue)
        question.command.code = int(RequestCode.SEND_REPLY_MESSAGE_V2)
        try:
            await session.ask(routes.master(queue), question, timeout_s)
        except (RefusedError, UnreachableError) as error:
            failure = failure or error
        else:
            return
    assert failure is not None, "a topic that may be written to has a queue"
    routes.doubt(outgoing.topic)
    raise failure
