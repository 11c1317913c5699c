"""Signed texts that clients keep and bring back: receipt handles and transaction ids.  Pure.

    <payload> . <tag>      see `gateway.signed`

The tag covers the names (group and topic) that the request has to name as well: a handle is worth nothing for another
group.  Any proxy with the same keys takes the handles of any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gantry.client.popped import Receipt
from gantry.client.requests.transaction_requests import Half
from gantry.gateway.signed import SignedTexts
from gantry.leaves import fields
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.faults import FaultError


@dataclass(frozen=True, slots=True)
class DeliveredLease:
    """What a receipt handle says: one delivery of a message.  `attempt` counts from 1."""

    receipt: Receipt
    attempt: int
    is_renewed: bool  # by the broker, while the client lives


class Handles:
    """Writes and reads signed texts; `keys` has at least one, the first signs."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._texts = SignedTexts(keys)

    def receipt(self, group: str, topic: str, lease: DeliveredLease) -> str:
        """Return the receipt handle of a delivery to this group."""
        return self._texts.write(f"{lease.attempt} {int(lease.is_renewed)} {lease.receipt}", "receipt", group, topic)

    def read_receipt(self, text: str, group: str, topic: str) -> DeliveredLease:
        """Return what a receipt handle says; FaultError INVALID_RECEIPT_HANDLE for any other text."""
        payload = self._texts.read(text, "receipt", group, topic)
        if payload is None:
            remark = f"receipt handle {text[:40]!r} is not one of group {group} and topic {topic}"
            raise FaultError(pb.INVALID_RECEIPT_HANDLE, remark)
        attempt, is_renewed, receipt = payload.split(" ", 2)
        return DeliveredLease(Receipt.parse(receipt), int(attempt), is_renewed == "1")

    def transaction(self, half: Half) -> str:
        """Return the transaction id of a half message: all that ending it takes."""
        payload = f"{half.half_offset} {half.log_offset} {half.message_id} {half.broker_name}"
        return self._texts.write(payload, "transaction", half.topic)

    def read_transaction(self, text: str, topic: str) -> Half | None:
        """Return the half of a transaction id; None when it is not one of this topic."""
        payload = self._texts.read(text, "transaction", topic)
        if payload is None:
            return None
        half_offset, log_offset, rest = payload.split(" ", 2)
        message_id, _, broker_name = rest.rpartition(" ")
        offsets = fields.integer(half_offset), fields.integer(log_offset)
        assert offsets[0] is not None and offsets[1] is not None, "the signature was ours"
        return Half(topic, message_id, broker_name, offsets[0], offsets[1])
