"""Answers that are no success: a code of the gRPC protocol and a text for a person.

gRPC's own status is OK for them; code and text travel in the `status` of the answer (facts: protocol, section 10.2).
`of_error` translates what a broker or the connection to it said.
"""

from __future__ import annotations

from gantry.errors import GantryError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.proxy import messaging_pb2 as pb
from gantry.wire.codes import ResponseCode

_OF_BROKER: dict[int, pb.Code] = {
    ResponseCode.SYSTEM_BUSY: pb.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: pb.NOT_IMPLEMENTED,
    ResponseCode.FLUSH_DISK_TIMEOUT: pb.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: pb.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: pb.HA_NOT_AVAILABLE,
    ResponseCode.MESSAGE_ILLEGAL: pb.BAD_REQUEST,
    ResponseCode.NO_PERMISSION: pb.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: pb.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: pb.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: pb.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.NO_MESSAGE: pb.INVALID_RECEIPT_HANDLE,  # only requests with a handle are answered so
    ResponseCode.POLLING_FULL: pb.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: pb.TOO_MANY_REQUESTS,
}


class FaultError(GantryError):
    """A request that cannot be carried out; `code` is the protocol's."""

    def __init__(self, code: pb.Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    def status(self) -> pb.Status:
        """Return code and text as the answer carries them."""
        return pb.Status(code=self.code, message=self.text)


def ok() -> pb.Status:
    """Return the status of success."""
    return pb.Status(code=pb.OK, message="OK")


def common(statuses: list[pb.Status]) -> pb.Status:
    """Return the status of an answer with one status for each entry: theirs, or MULTIPLE_RESULTS if they differ."""
    if len({status.code for status in statuses}) == 1:
        return statuses[0]
    return pb.Status(code=pb.MULTIPLE_RESULTS, message="the entries have different results; look at each status")


def code_of(code: int) -> pb.Code:
    """Return the code for a broker's refusal."""
    return _OF_BROKER.get(code, pb.INTERNAL_SERVER_ERROR)


def of_error(error: GantryError) -> FaultError:
    """Return the answer for an error of a request to a broker or name server."""
    if isinstance(error, FaultError):
        return error
    if isinstance(error, RefusedError):
        return FaultError(code_of(error.code), error.remark)
    if isinstance(error, (UnreachableError, OutcomeUnknownError)):
        return FaultError(pb.PROXY_TIMEOUT, str(error))
    return FaultError(pb.INTERNAL_SERVER_ERROR, str(error))
