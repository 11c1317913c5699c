"""What a server of HTTP queues refuses, by the code of its answer.

    ServiceError                the server understood and said no: HTTP status, code, text, request id
      QueueNotExistError ...    one class for each code that a program treats differently
    PartialSendError,           some items of a batch failed; the items say which
    PartialDeleteError
    UnsafeQueueError            the attributes of a transaction queue would lose or show messages
    LateCommitError             a commit that came after the end of the prepared message's life

Where nothing was sent or no answer came, the errors are those of all of GantryMQ: UnreachableError,
OutcomeUnknownError, RemoteProtocolError.
"""

from __future__ import annotations

from dataclasses import dataclass

from gantry.errors import ConfigError, GantryError


class ServiceError(GantryError):
    """The server's refusal: `status` of HTTP, `code` and `text` of its document, `request_id` for its log."""

    def __init__(self, status: int, code: str, text: str, request_id: str = "") -> None:
        super().__init__(f"refused with {code} ({status}): {text}{f'; request {request_id}' if request_id else ''}")
        self.status = status
        self.code = code
        self.text = text
        self.request_id = request_id

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed a moment later; what this one did is unknown then."""
        return self.status >= 500


class QueueNotExistError(ServiceError):
    """There is no queue of this name."""


class QueueAlreadyExistError(ServiceError):
    """The queue is there with other attributes; set them with `set_attributes`."""


class MessageNotExistError(ServiceError):
    """No message is visible, or the receipt handle is void: used, replaced, expired, or its message was deleted."""


class ReceiptHandleError(ServiceError):
    """The text is no receipt handle of this queue."""


class InvalidRequestError(ServiceError):
    """An argument, a header or the document of a request is wrong; another attempt gets the same answer."""


class AccessError(ServiceError):
    """Unknown access id, wrong secret, a clock that is wrong by more than the server allows, or no right."""


_BY_CODE: dict[str, type[ServiceError]] = {
    "QueueNotExist": QueueNotExistError,
    "QueueAlreadyExist": QueueAlreadyExistError,
    "MessageNotExist": MessageNotExistError,
    "ReceiptHandleError": ReceiptHandleError,
    "InvalidArgument": InvalidRequestError,
    "InvalidRequest": InvalidRequestError,
    "MalformedXML": InvalidRequestError,
    "InvalidQueueName": InvalidRequestError,
    "QueueNameLengthError": InvalidRequestError,
    "InvalidDateHeader": AccessError,
    "SignatureDoesNotMatch": AccessError,
    "AccessIDAuthError": AccessError,
    "InvalidAccessKeyId": AccessError,
    "AccessDenied": AccessError,
    "TimeExpired": AccessError,
}


def service_error(status: int, code: str, text: str, request_id: str = "") -> ServiceError:
    """Return the error of the class that belongs to the code; ServiceError itself for other codes."""
    return _BY_CODE.get(code, ServiceError)(status, code, text, request_id)


@dataclass(frozen=True, slots=True)
class ItemFailure:
    """One item of a batch that was refused; `item` is the handle of a deletion, empty for a send."""

    code: str
    text: str
    item: str = ""


class PartialSendError(GantryError):
    """Some messages of a batch were not stored: `results` has a StoredReceipt or an ItemFailure for each, in order."""

    def __init__(self, results: tuple[object, ...]) -> None:
        failed = [each for each in results if isinstance(each, ItemFailure)]
        super().__init__(f"{len(failed)} of {len(results)} messages were not stored, the first: {failed[0].code}")
        self.results = results


class PartialDeleteError(GantryError):
    """Some messages of a batch were not deleted: `failures` names each handle with its code."""

    def __init__(self, failures: tuple[ItemFailure, ...]) -> None:
        super().__init__(f"{len(failures)} messages were not deleted, the first: {failures[0].code}")
        self.failures = failures


class UnsafeQueueError(ConfigError):
    """A transaction queue whose attributes would show messages nobody committed, or lose committed ones."""


class LateCommitError(GantryError):
    """The local transaction was committed, and its message may be lost: its life had ended when the commit came.

    The server cannot tell such a message from one that was committed in time and consumed.  `handle` is the receipt
    handle that the local transaction stored; a person has to look.
    """

    def __init__(self, queue: str, handle: str) -> None:
        super().__init__(
            f"queue {queue}: a message was committed after its life may have ended, and may be lost; "
            f"compare the local transaction of receipt handle {handle} with what consumers have done"
        )
        self.queue = queue
        self.handle = handle
