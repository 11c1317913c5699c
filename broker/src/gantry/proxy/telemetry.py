"""The telemetry stream: a client's settings, and the commands that go to the client.

Settings are answered at once, completed.  The first answer on a stream is sent a second time after 300 ms: RocketMQ's
client for Node.js with two topics or more does not see an answer that comes before it has all routes, and would wait
for five minutes.  Settings that cannot be used end the stream with INVALID_ARGUMENT.

A stream ends when the client closes its half.  Its end says nothing about the client: see `clients`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import grpc

from gantry.errors import GantryError
from gantry.gateway.brokers import Brokers
from gantry.model.subscription import GroupConfig
from gantry.proxy import faults, routes, settings
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.caller import Caller
from gantry.proxy.calls import NOT_READABLE
from gantry.proxy.clients import KnownClient, KnownClients
from gantry.proxy.faults import FaultError
from gantry.proxy.stream import Stream
from gantry.transport.fairness import SharedPlaces
from gantry.transport.tasks import cancelled

if TYPE_CHECKING:
    from gantry.proxy.calls import Context

log = logging.getLogger(__name__)

STREAMS_MAX = 20_000
_AGAIN_S = 0.3
_GROUP_S = 1.0  # for a group's configuration; then the settings are those of a group without one
_ENTRIES_MAX = 1_000  # topics in the settings of one client
_SETTINGS_BYTES_MAX = 256 << 10  # they are kept for each client


class Telemetry:
    """Serves all streams."""

    def __init__(self, brokers: Brokers, clients: KnownClients) -> None:
        self._brokers = brokers
        self._clients = clients
        self._is_draining = False
        self._places = SharedPlaces(STREAMS_MAX)

    async def serve(
        self, commands: AsyncIterator[pb.TelemetryCommand | None], context: Context, caller: Caller
    ) -> None:
        """Serve one stream until the client closes its half, or breaks the protocol."""
        client = self._clients.seen(caller, asyncio.get_running_loop().time())
        if self._is_draining or not self._places.take(caller):
            streams = f"{self._clients.streams} telemetry streams are open, and this host has its share of them"
            text = "the proxy ends" if self._is_draining else streams
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"{text}; connect to another proxy")
        stream = Stream(caller.client_id)
        self._clients.opened(client, stream)
        reading = asyncio.create_task(self._read(commands, client, stream, caller))
        try:
            while (command := await stream.next()) is not None:
                await context.write(command)
            if stream.fault is not None:
                text = f"process client telemetryCommand failed. {stream.fault.text}"
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        finally:
            self._clients.closed(client, stream)
            self._places.give_back(caller)
            stream.finish()
            await cancelled([reading])

    def drain(self) -> None:
        """End all streams and take no more: clients go to another proxy."""
        self._is_draining = True
        for client in self._clients.alive(-float("inf")):
            for stream in client.streams:
                stream.finish()

    async def _read(
        self, commands: AsyncIterator[pb.TelemetryCommand | None], client: KnownClient, stream: Stream, caller: Caller
    ) -> None:
        is_first = True
        try:
            async for command in commands:
                if command is None:
                    raise FaultError(pb.BAD_REQUEST, NOT_READABLE)
                self._clients.called(client, asyncio.get_running_loop().time())
                if command.WhichOneof("command") == "settings":
                    answer = await self._settled(command.settings, client, caller)
                    stream.offer(answer)
                    if is_first:
                        asyncio.get_running_loop().call_later(_AGAIN_S, stream.offer, answer)
                    is_first = False
                else:
                    log.debug("%s: answer to a command: %s", caller.client_id, command.WhichOneof("command"))
            stream.finish()
        except FaultError as fault:
            stream.finish(fault)
        finally:
            stream.finish()  # whatever happened: nobody reads the client any more

    async def _settled(self, sent: pb.Settings, client: KnownClient, caller: Caller) -> pb.TelemetryCommand:
        """Remember the settings of a client. Return the answer; FaultError when they cannot be used."""
        kind = sent.WhichOneof("pub_sub")
        if kind is None:
            raise FaultError(pb.BAD_REQUEST, "there is no publishing or subscription data in settings")
        if sent.ByteSize() > _SETTINGS_BYTES_MAX:
            text = f"settings of {sent.ByteSize()} bytes, {_SETTINGS_BYTES_MAX} are allowed; name fewer topics"
            raise FaultError(pb.BAD_REQUEST, text)
        named = settings.topics(sent)
        if len(named) > _ENTRIES_MAX:
            raise FaultError(pb.BAD_REQUEST, f"{len(named)} topics in settings, {_ENTRIES_MAX} are allowed")
        group: GroupConfig | None = None
        if kind == "publishing":
            for topic in sent.publishing.topics:
                client.sends_to(routes.topic_name(topic))
            if not self._brokers.has_announced(client.published):
                await self._announce()
        else:
            for entry in sent.subscription.subscriptions:
                routes.topic_name(entry.topic)
            name = routes.group_name(sent.subscription.group)
            client.joined(name)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GROUP_S):
                    group = await self._brokers.group(name)
        self._clients.keep_settings(client, sent)
        return pb.TelemetryCommand(status=faults.ok(), settings=settings.completed(sent, caller, group))

    async def _announce(self) -> None:
        try:
            async with asyncio.timeout(_GROUP_S):
                await self._brokers.announce()
        except (TimeoutError, GantryError) as error:
            log.info("a new producer is not announced to its brokers yet: %s", error)
