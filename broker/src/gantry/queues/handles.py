"""Receipt handles of queues: signed texts that say how to find a message again.  Pure.

    L <incarnation> <receipt of the pop>     a message that was received: its lease
    D <incarnation> <recall handle>          a delayed message that is not visible yet

A handle is good once: the next receive of the message, and every change, makes a new one.  Brokers decide that; here
only the queue and its incarnation are compared.  A handle of a deleted queue is void, not malformed.
"""

from __future__ import annotations

from dataclasses import dataclass

from gantry.client.popped import Receipt
from gantry.client.requests.recall import queue_of
from gantry.gateway.signed import SignedTexts
from gantry.queues.attributes import KnownQueue
from gantry.queues.faults import bad_handle, no_message

_PURPOSE = "queue handle"


@dataclass(frozen=True, slots=True)
class DelayedPlace:
    """A delayed message: the broker's handle to cancel or re-time it."""

    broker: str
    recall_handle: str


class QueueHandles:
    """Writes and reads handles."""

    def __init__(self, texts: SignedTexts) -> None:
        self._texts = texts

    def leased(self, queue: KnownQueue, receipt: Receipt) -> str:
        """Return the handle of a received message."""
        return self._texts.write(f"L {queue.incarnation} {receipt}", _PURPOSE, queue.name)

    def delayed(self, queue: KnownQueue, recall_handle: str) -> str:
        """Return the handle of a delayed message."""
        return self._texts.write(f"D {queue.incarnation} {recall_handle}", _PURPOSE, queue.name)

    def is_of_another_time(self, queue: KnownQueue, text: str) -> bool:
        """Return whether a handle is of a queue of this name that was made before or after the given one."""
        payload = self._texts.read(text, _PURPOSE, queue.name)
        return payload is not None and payload.split(" ", 2)[1] != queue.incarnation

    def read(self, queue: KnownQueue, text: str) -> Receipt | DelayedPlace:
        """Return what a handle says.

        QueueFaultError ReceiptHandleError for any other text, MessageNotExist for one of a queue that was deleted.
        """
        payload = self._texts.read(text, _PURPOSE, queue.name)
        if payload is None:
            raise bad_handle()
        kind, incarnation, rest = payload.split(" ", 2)
        if incarnation != queue.incarnation:
            raise no_message()
        if kind == "L":
            return Receipt.parse(rest)
        return DelayedPlace(queue_of(rest).broker_name, rest)
