"""Answers that are no success: an HTTP status, a code of MNS and a text for a person.

`of_error` translates what a broker or the connection to it said.  A broker that cannot be reached, and an answer that
was lost, are 500 InternalError: SDKs repeat the call.
"""

from __future__ import annotations

from gantry.errors import GantryError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.wire.codes import ResponseCode

_BUSY = (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL, ResponseCode.POLLING_FULL)


class QueueFaultError(GantryError):
    """A request that cannot be carried out: HTTP status, code of the protocol and text."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text


def no_queue(name: str) -> QueueFaultError:
    """Return the answer for a queue that does not exist."""
    text = f"the queue {name[:120]} does not exist; create it with PUT /queues/NAME"
    return QueueFaultError(404, "QueueNotExist", text)


def no_message() -> QueueFaultError:
    """Return the answer to a receive that found nothing, and to a handle whose message is not leased by it."""
    return QueueFaultError(404, "MessageNotExist", "Message not exist.")


def bad_handle() -> QueueFaultError:
    """Return the answer for a text that is no handle of this queue."""
    return QueueFaultError(400, "ReceiptHandleError", "The receipt handle is not one of this queue.")


def invalid(text: str) -> QueueFaultError:
    """Return the answer for a value that is not allowed."""
    return QueueFaultError(400, "InvalidArgument", text)


def malformed(text: str) -> QueueFaultError:
    """Return the answer for a body that is not the document that the call takes."""
    return QueueFaultError(400, "MalformedXML", text)


def of_error(error: GantryError) -> QueueFaultError:
    """Return the answer for an error of a request to a broker or name server."""
    if isinstance(error, QueueFaultError):
        return error
    if isinstance(error, RefusedError):
        if error.code in _BUSY:
            return QueueFaultError(503, "ServiceUnavailable", error.remark)
        return QueueFaultError(500, "InternalError", error.remark)
    if isinstance(error, (UnreachableError, OutcomeUnknownError)):
        return QueueFaultError(500, "InternalError", str(error))
    return QueueFaultError(500, "InternalError", str(error))
