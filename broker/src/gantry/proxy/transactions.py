"""EndTransaction, and the checks of brokers on their way to producers.

What ending a half takes is in its transaction id (`handles`), so any proxy can end it, also after this one has died.
An id that is only the message's unique id (from another proxy, or a client that keeps no more) is looked up at the
brokers of the topic.  The broker's answer is awaited: a client learns when a transaction was decided otherwise before.

A check is a broker's one-way request.  It goes to any client with a telemetry stream that publishes the topic, also of
another process than the sender's.  Without one it is dropped, and the broker asks again.
"""

from __future__ import annotations

import asyncio
import logging

from gantry.client.requests import transaction_requests, tx_requests
from gantry.client.requests.transaction_requests import Half, Outcome
from gantry.errors import GantryError, RefusedError, RemoteProtocolError
from gantry.gateway.brokers import Brokers
from gantry.leaves.frames import Command
from gantry.proxy import convert, routes
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.clients import KnownClients
from gantry.proxy.faults import FaultError
from gantry.proxy.handles import Handles
from gantry.transport.connection import Connection
from gantry.wire.codes import RequestCode

log = logging.getLogger(__name__)

_END_S = 3.0
_ID_CHARACTERS_MAX = 1024
_OUTCOMES = {
    pb.COMMIT: Outcome.COMMIT,
    pb.ROLLBACK: Outcome.ROLLBACK,
    pb.TRANSACTION_RESOLUTION_UNSPECIFIED: Outcome.UNKNOWN,
}


class Transactions:
    """Ends and checks for all producers."""

    def __init__(self, clients: KnownClients, handles: Handles) -> None:
        self._clients = clients
        self._handles = handles
        self.checks_dropped = 0

    async def end(self, request: pb.EndTransactionRequest, brokers: Brokers) -> None:
        """End a transaction; FaultError when the id is unknown, or the broker refuses."""
        topic = routes.topic_name(request.topic)
        if not request.transaction_id.strip():
            raise FaultError(pb.INVALID_TRANSACTION_ID, "transaction id cannot be blank")
        outcome = _OUTCOMES.get(request.resolution)
        if outcome is None:
            raise FaultError(pb.BAD_REQUEST, f"transaction resolution {request.resolution} is not known")
        half = self._handles.read_transaction(request.transaction_id, topic)
        if half is None:
            half = await self._looked_up(request.transaction_id, topic, brokers)
        address = await brokers.master_of(half.broker_name)
        is_check = request.source == pb.SOURCE_SERVER_CHECK
        question = transaction_requests.end(topic, half, outcome, is_check)
        if outcome is Outcome.UNKNOWN:
            await brokers.session.tell(address, question.command, _END_S)  # RocketMQ: brokers do not answer it
        else:
            await brokers.session.ask(address, question, _END_S)

    def on_request(self, connection: Connection, command: Command) -> bool:
        """Take a check from a broker. Return False for any other request."""
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return False
        try:
            group, check = transaction_requests.read_check(command)
        except RemoteProtocolError as error:
            log.warning("a check from %s cannot be read: %s", connection.peer, error)
            return True
        stream = self._clients.stream_for(check.message.topic)
        wanted = pb.RecoverOrphanedTransactionCommand(
            message=convert.delivered(check.message, pb.Resource(name=check.message.topic)),
            transaction_id=self._handles.transaction(check.half),
        )
        if stream is None or not stream.offer(pb.TelemetryCommand(recover_orphaned_transaction_command=wanted)):
            self.checks_dropped += 1
            log.info("%s: no producer of topic %s takes a check now", group, check.message.topic)
        return True

    async def _looked_up(self, wanted: str, topic: str, brokers: Brokers) -> Half:
        unknown = FaultError(
            pb.INTERNAL_SERVER_ERROR,
            f"cannot found transaction data of {wanted[:60]!r} in topic {topic}; the broker will ask a producer",
        )
        if len(wanted) > _ID_CHARACTERS_MAX:
            raise unknown
        route = await brokers.route(topic)
        masters = [(one.broker_name, one.master) for one in route.brokers if one.master is not None]
        asked = [brokers.session.ask(address, tx_requests.shown(name, wanted), _END_S) for name, address in masters]
        failure: GantryError | None = None
        for found in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(found, tx_requests.TransactionInfo):
                if found.topic == topic and found.producer_group == topic:
                    return Half(topic, found.id, found.broker, found.half_offset, found.log_offset)
            elif isinstance(found, GantryError):
                failure = failure if isinstance(found, RefusedError) else found
            elif found is not None:
                raise found
        raise failure or unknown
