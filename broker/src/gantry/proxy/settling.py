"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue: what a consumer says about leased messages.

A handle that was not made for this group and topic, or whose message is leased to another client by now, is
INVALID_RECEIPT_HANDLE: clients give up on it, and repeat everything else every second.  All three may be repeated.

A consumer of kind push has its failed messages delivered again after the delay of its group's policy.  RocketMQ's
client for Node.js knows none of it and asks for no delay at all, which would deliver a message that always fails 240
times a second: a lease that is renewed for its client waits at least as long as the policy says for its attempt.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry.client.popped import Receipt
from gantry.client.requests import pop_requests
from gantry.client.requests.question import Question, require
from gantry.errors import GantryError
from gantry.gateway.brokers import Brokers
from gantry.leaves.frames import Command
from gantry.proxy import faults, routes, settings, validation
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.caller import Caller
from gantry.proxy.faults import FaultError
from gantry.proxy.handles import DeliveredLease, Handles

if TYPE_CHECKING:
    from gantry.proxy.calls import Context

ENTRIES_MAX = 1_000
_WITHIN_S = 2.5  # of one call with its attempts; clients wait 3 s
_FLOOR_MS = 1_000
# How our brokers tell a handle that was used before from one whose message was leased again; RocketMQ's do not.
_VERDICT, _STALE = "gantryVerdict", "stale"


class LeaseCalls:
    """Settles leased messages for all consumers."""

    def __init__(self, brokers: Brokers, handles: Handles) -> None:
        self._brokers = brokers
        self._handles = handles

    async def ack(self, request: pb.AckMessageRequest, caller: Caller, context: Context) -> pb.AckMessageResponse:
        """Acknowledge messages; each entry has a result."""
        topic, group = routes.topic_name(request.topic), routes.group_name(request.group)
        if not 0 < len(request.entries) <= ENTRIES_MAX:
            raise FaultError(pb.BAD_REQUEST, f"{len(request.entries)} entries, expected 1 to {ENTRIES_MAX}")
        results: list[GantryError | None] = []
        leases: list[tuple[int, DeliveredLease]] = []
        for index, entry in enumerate(request.entries):
            results.append(None)
            try:
                leases.append((index, self._handles.read_receipt(entry.receipt_handle, group, topic)))
            except FaultError as fault:
                results[index] = fault
        answers = await asyncio.gather(*(self._acked(group, topic, lease.receipt) for _, lease in leases))
        for (index, _), answer in zip(leases, answers, strict=True):
            results[index] = answer
        entries = [
            pb.AckMessageResultEntry(
                message_id=entry.message_id,
                receipt_handle=entry.receipt_handle,
                status=faults.ok() if result is None else faults.of_error(result).status(),
            )
            for entry, result in zip(request.entries, results, strict=True)
        ]
        return pb.AckMessageResponse(status=faults.common([entry.status for entry in entries]), entries=entries)

    async def change(
        self, request: pb.ChangeInvisibleDurationRequest, caller: Caller, context: Context
    ) -> pb.ChangeInvisibleDurationResponse:
        """Make a message visible at another time; the answer has its new handle."""
        topic, group = routes.topic_name(request.topic), routes.group_name(request.group)
        invisible_ms = request.invisible_duration.ToMilliseconds()
        validation.check_invisible(invisible_ms, low_ms=0)
        lease = self._handles.read_receipt(request.receipt_handle, group, topic)
        if lease.is_renewed and invisible_ms < _FLOOR_MS:
            config = await self._brokers.group(group)
            invisible_ms = int(settings.redelivery_delay_s(config, lease.attempt) * 1000)
        changed = await self._brokers.popping.change(group, topic, lease.receipt, invisible_ms / 1000, _WITHIN_S)
        handle = self._handles.receipt(group, topic, DeliveredLease(changed, lease.attempt, lease.is_renewed))
        return pb.ChangeInvisibleDurationResponse(status=faults.ok(), receipt_handle=handle)

    async def forward(
        self, request: pb.ForwardMessageToDeadLetterQueueRequest, caller: Caller, context: Context
    ) -> pb.ForwardMessageToDeadLetterQueueResponse:
        """Make a message a dead letter of its group."""
        topic, group = routes.topic_name(request.topic), routes.group_name(request.group)
        lease = self._handles.read_receipt(request.receipt_handle, group, topic)
        await self._brokers.popping.bury(group, topic, lease.receipt, _WITHIN_S)
        return pb.ForwardMessageToDeadLetterQueueResponse(status=faults.ok())

    async def _acked(self, group: str, topic: str, receipt: Receipt) -> GantryError | None:
        """Acknowledge one message. Return None, or why it was not; a repetition is no error."""

        def read(reply: Command) -> None:
            if require(reply).ext.get(_VERDICT) == _STALE:
                raise FaultError(pb.INVALID_RECEIPT_HANDLE, "receipt handle is expired: the message was leased again")

        question = Question(pop_requests.ack(group, topic, receipt).command, read)
        try:
            await self._brokers.until_done(receipt.broker, question, _WITHIN_S)
        except GantryError as error:
            return error
        return None
