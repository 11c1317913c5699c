"""The RPCs by name: one table, and what is the same for all of them.

Each call is counted, makes its client live, and is answered: an expected refusal (`FaultError`, or an error of a
broker) is a status in the answer, with gRPC's own status OK.  The RPCs of consumers that keep their own
offsets, and of lite topics, are declared by the protocol but have no client or no use here: gRPC's status UNIMPLEMENTED
says what to use instead.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import grpc

from gantry.errors import GantryError
from gantry.gateway.brokers import Brokers
from gantry.proxy import caller as callers
from gantry.proxy import calls, faults, routes
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.acceptor import peer_of
from gantry.proxy.caller import Caller
from gantry.proxy.calls import NOT_READABLE, readable
from gantry.proxy.clients import KnownClients
from gantry.proxy.faults import FaultError
from gantry.proxy.presence import OwnerReports
from gantry.proxy.receiving import ReceiveCalls
from gantry.proxy.sending import SendCalls
from gantry.proxy.settling import LeaseCalls
from gantry.proxy.telemetry import Telemetry
from gantry.proxy.transactions import Transactions
from gantry.transport.fairness import SharedPlaces

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from gantry.proxy.calls import Context


class _Answer(Protocol):
    """The answer of a unary call."""

    @property
    def status(self) -> pb.Status:
        ...

    def SerializeToString(self) -> bytes:  # noqa: N802  protobuf's name
        ...


Q = TypeVar("Q", bound="Message")
A = TypeVar("A", bound=_Answer)

SERVICE = "apache.rocketmq.v2.MessagingService"
_UNIMPLEMENTED = {
    "PullMessage": "consumers that pull use remoting (gantry.client.PullConsumer, DefaultLitePullConsumer)",
    "UpdateOffset": "offsets are those of the broker; set them with gantry group reset",
    "GetOffset": "offsets are those of the broker; see them with gantry group show",
    "QueryOffset": "offsets are those of the broker; see them with gantry group show",
    "SyncLiteSubscription": "lite topics are not supported; use ordinary topics",
}
_CODE_NAMES = {number: name for name, number in pb.Code.items()}
LONG_BYTES_MAX = 512 << 20  # of requests under way that are not short: sends that wait for a broker
_LONG_BYTES_MIN = 16 << 10  # fifty thousand short ones take less than a gigabyte
_SEND_S = 3.0  # without a deadline of the client
_MARGIN_S = 0.2  # for the way back to the client, within its deadline


class Service:
    """What the RPCs do, put together from the parts."""

    def __init__(
        self,
        brokers: Brokers,
        clients: KnownClients,
        telemetry: Telemetry,
        sending: SendCalls,
        transactions: Transactions,
        consuming: tuple[ReceiveCalls, LeaseCalls, OwnerReports],
        advertised: pb.Endpoints | None,
    ) -> None:
        self._brokers = brokers
        self._clients = clients
        self._telemetry = telemetry
        self._sending = sending
        self._transactions = transactions
        self._receiving, self._settling, self._presence = consuming
        self._advertised = advertised
        self._long = SharedPlaces(LONG_BYTES_MAX)
        self.answered: Counter[tuple[str, str]] = Counter()  # by RPC and name of the code

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the table of all RPCs for a server."""
        settling = self._settling
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "QueryRoute": self._unary(self._query_route, pb.QueryRouteRequest, pb.QueryRouteResponse),
            "Heartbeat": self._unary(self._heartbeat, pb.HeartbeatRequest, pb.HeartbeatResponse),
            "NotifyClientTermination": self._unary(
                self._notify_termination, pb.NotifyClientTerminationRequest, pb.NotifyClientTerminationResponse
            ),
            "SendMessage": self._unary(self._send, pb.SendMessageRequest, pb.SendMessageResponse),
            "EndTransaction": self._unary(self._end_transaction, pb.EndTransactionRequest, pb.EndTransactionResponse),
            "RecallMessage": self._unary(self._recall, pb.RecallMessageRequest, pb.RecallMessageResponse),
            "QueryAssignment": self._unary(
                self._query_assignment, pb.QueryAssignmentRequest, pb.QueryAssignmentResponse
            ),
            "AckMessage": self._unary(settling.ack, pb.AckMessageRequest, pb.AckMessageResponse),
            "ChangeInvisibleDuration": self._unary(
                settling.change, pb.ChangeInvisibleDurationRequest, pb.ChangeInvisibleDurationResponse
            ),
            "ForwardMessageToDeadLetterQueue": self._unary(
                settling.forward,
                pb.ForwardMessageToDeadLetterQueueRequest,
                pb.ForwardMessageToDeadLetterQueueResponse,
            ),
        }
        methods["Telemetry"] = grpc.stream_stream_rpc_method_handler(
            self._serve_telemetry, readable(pb.TelemetryCommand.FromString), pb.TelemetryCommand.SerializeToString
        )
        methods["ReceiveMessage"] = grpc.unary_stream_rpc_method_handler(
            self._serve_receive,
            readable(pb.ReceiveMessageRequest.FromString),
            pb.ReceiveMessageResponse.SerializeToString,
        )
        methods |= {name: _unimplemented(name, text) for name, text in _UNIMPLEMENTED.items()}
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _unary(
        self, work: Callable[[Q, Caller, Context], Coroutine[Any, Any, A]], request_type: type[Q], answer_type: type[A]
    ) -> grpc.RpcMethodHandler[Q, A]:
        name = request_type.__name__.removesuffix("Request")
        answer: Callable[..., A] = answer_type

        async def serve(request: Q | None, context: Context) -> A:
            if request is None:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{name}: {NOT_READABLE}")
            assert request is not None, "abort raises"
            try:
                caller = self._entered(context)
                found = await self._bounded(request, caller, work(request, caller, context))
            except GantryError as error:
                found = answer(status=faults.of_error(error).status())
            self.count(name, found.status.code)
            return found

        return grpc.unary_unary_rpc_method_handler(
            serve,
            readable(request_type.FromString),  # type: ignore[arg-type]  # stubs: it may not give None
            answer_type.SerializeToString,
        )

    async def _bounded(self, request: Message, caller: Caller, work: Coroutine[Any, Any, A]) -> A:
        """Do the work of a call; FaultError TOO_MANY_REQUESTS when long requests under way take too much together."""
        size = request.ByteSize()
        if size < _LONG_BYTES_MIN:
            return await work
        if not self._long.take(caller, size):
            work.close()
            text = f"{self._long.taken} bytes of requests are under way, and this client or host has its share of them"
            raise FaultError(pb.TOO_MANY_REQUESTS, f"{text}; try again in a moment")
        try:
            return await work
        finally:
            self._long.give_back(caller, size)

    def count(self, name: str, code: int) -> None:
        """Count an answered call."""
        self.answered[name, _CODE_NAMES.get(code, "CODE_UNSPECIFIED")] += 1

    def _entered(self, context: Context) -> Caller:
        caller = callers.read(context.invocation_metadata() or (), peer_of(context.peer()))
        self._clients.seen(caller, asyncio.get_running_loop().time())
        return caller

    async def _serve_telemetry(self, commands: AsyncIterator[pb.TelemetryCommand | None], context: Context) -> None:
        try:
            caller = self._entered(context)
            await self._telemetry.serve(commands, context, caller)
        except FaultError as fault:
            text = f"process client telemetryCommand failed. {fault.text}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)

    async def _serve_receive(self, request: pb.ReceiveMessageRequest | None, context: Context) -> None:
        if request is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"ReceiveMessage: {NOT_READABLE}")
        assert request is not None, "abort raises"
        try:
            caller = self._entered(context)
            code = await self._receiving.serve(request, context, caller)
        except GantryError as error:
            status = faults.of_error(error).status()
            code = status.code
            await self._receiving.refuse(context, status)
        self.count("ReceiveMessage", code)

    async def _query_route(
        self, request: pb.QueryRouteRequest, caller: Caller, context: Context
    ) -> pb.QueryRouteResponse:
        topic = routes.topic_name(request.topic)
        where = routes.endpoints(request.endpoints, self._advertised)
        route = await self._brokers.route(topic)
        types = routes.accepted(await self._brokers.attributes(topic))
        found = routes.queues(request.topic, route, where, types)
        if not found:
            raise FaultError(pb.TOPIC_NOT_FOUND, f"topic {topic} has no queue on a broker that has a master now")
        return pb.QueryRouteResponse(status=faults.ok(), message_queues=found)

    async def _query_assignment(
        self, request: pb.QueryAssignmentRequest, caller: Caller, context: Context
    ) -> pb.QueryAssignmentResponse:
        topic, group = routes.topic_name(request.topic), routes.group_name(request.group)
        where = routes.endpoints(request.endpoints, self._advertised)
        route = await self._brokers.route(topic)
        is_orderly = await self._brokers.is_orderly(group)
        found = routes.assignments(request.topic, route, where, is_orderly)
        return pb.QueryAssignmentResponse(status=faults.ok(), assignments=found)

    async def _heartbeat(self, request: pb.HeartbeatRequest, caller: Caller, context: Context) -> pb.HeartbeatResponse:
        if request.HasField("group") and request.group.name:
            client = self._clients.seen(caller, asyncio.get_running_loop().time())
            client.joined(routes.group_name(request.group))
        return pb.HeartbeatResponse(status=faults.ok())

    async def _notify_termination(
        self, request: pb.NotifyClientTerminationRequest, caller: Caller, context: Context
    ) -> pb.NotifyClientTerminationResponse:
        await self._presence.ended(caller.client_id)
        return pb.NotifyClientTerminationResponse(status=faults.ok())

    async def _send(self, request: pb.SendMessageRequest, caller: Caller, context: Context) -> pb.SendMessageResponse:
        left_s = calls.left_s(context)
        within_s = _SEND_S if left_s is None else max(_MARGIN_S, left_s - _MARGIN_S)
        found = await self._sending.send(request, caller, min(within_s, 3 * _SEND_S))
        if any(entry.transaction_id for entry in found.entries):
            client = self._clients.seen(caller, asyncio.get_running_loop().time())
            client.sends_to(request.messages[0].topic.name)
        return found

    async def _end_transaction(
        self, request: pb.EndTransactionRequest, caller: Caller, context: Context
    ) -> pb.EndTransactionResponse:
        await self._transactions.end(request, self._brokers)
        return pb.EndTransactionResponse(status=faults.ok())

    async def _recall(
        self, request: pb.RecallMessageRequest, caller: Caller, context: Context
    ) -> pb.RecallMessageResponse:
        message_id = await self._sending.recall(request)
        return pb.RecallMessageResponse(status=faults.ok(), message_id=message_id)


def _unimplemented(name: str, text: str) -> grpc.RpcMethodHandler[Message, Message]:
    async def serve(request: Message, context: Context) -> Message:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{name} is not supported; {text}")
        raise AssertionError("abort raises")

    request_type, answer_type = getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response")
    make = grpc.unary_stream_rpc_method_handler if name == "PullMessage" else grpc.unary_unary_rpc_method_handler
    return make(serve, request_type.FromString, answer_type.SerializeToString)
