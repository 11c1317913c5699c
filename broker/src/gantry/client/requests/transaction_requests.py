"""Requests of a transactional producer (SEND_MESSAGE_V2, END_TRANSACTION) and to it (CHECK_TRANSACTION_STATE).


A half message is a send with `TRAN_MSG` and `PGROUP` among its properties and the prepared bits in its sysFlag.  Its
answer names the half's offsets: the log offset is part of the broker's message id, the queue offset is that of the half
queue.  Both are sent with the end.  A check carries the whole message, with its real topic, and the offsets of the
half's newest copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from gantry.client.outgoing import PROPERTIES_BYTES_MAX, Outgoing
from gantry.client.requests.question import Question, nothing, number, require
from gantry.client.requests.questions import is_in_doubt, send
from gantry.errors import OutcomeUnknownError, RemoteProtocolError
from gantry.leaves import properties
from gantry.leaves.frames import Command
from gantry.leaves.records import parse_offset_message_id
from gantry.model.message import AGE_MS, SYS_COMMIT, SYS_PREPARED, SYS_ROLLBACK, StoredMessage
from gantry.model.route import MessageQueue
from gantry.wire import record
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import request

PRODUCER_GROUP = "PGROUP"
TRANSACTION = "TRAN_MSG"
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
_BROKER_BYTES = 1024  # room for what a broker adds to a half's properties when it stores it and when it copies it
# Stored, but the broker cannot guarantee that it keeps the message; it returns the offsets even so.
_NOT_KEPT = (
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)


class Outcome(Enum):
    """How a local transaction ended; the value is the number on the wire."""

    COMMIT = SYS_COMMIT
    ROLLBACK = SYS_ROLLBACK
    UNKNOWN = 0


@dataclass(frozen=True, slots=True)
class Half:
    """The offsets of a half message, and what its end has to name."""

    topic: str
    message_id: str
    broker_name: str
    half_offset: int
    log_offset: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The answer to a half; `code` is not SUCCESS when the half is stored but not safe."""

    half: Half
    queue: MessageQueue
    code: int
    offset_message_id: str


@dataclass(frozen=True, slots=True)
class Check:
    """A broker's request for the outcome of a half."""

    half: Half
    message: StoredMessage


def as_half(outgoing: Outgoing, group: str, immunity_s: int | None = None) -> Outgoing:
    """Return the message as a half; ValueError when its properties are too long, or for an invalid immunity time."""
    pairs = {TRANSACTION: "true", PRODUCER_GROUP: group}
    if immunity_s is not None:
        if immunity_s < 1:
            raise ValueError(f"an immunity of {immunity_s} s, expected whole seconds from 1")
        pairs[IMMUNITY] = str(immunity_s)
    packed = outgoing.properties + properties.pack(pairs)
    allowed = PROPERTIES_BYTES_MAX - _BROKER_BYTES
    if len(packed) > allowed:
        raise ValueError(f"properties of {len(packed)} bytes, {allowed} are allowed in a transaction")
    return replace(outgoing, properties=packed, sys_flag=outgoing.sys_flag | SYS_PREPARED)


def prepare(group: str, outgoing: Outgoing, queue: MessageQueue) -> Question[Prepared]:
    """Store a half; reading raises OutcomeUnknownError when it may be stored and its offset is unknown."""

    def read(reply: Command) -> Prepared:
        if reply.code not in _NOT_KEPT and is_in_doubt(reply):
            # It is unknown whether the next master has it.  It is not sent again, because both halves could be
            # committed.
            raise OutcomeUnknownError(f"{queue.broker_name}: {reply.code} {reply.remark}")
        require(reply, *_NOT_KEPT)
        if reply.code != ResponseCode.SUCCESS and "msgId" not in reply.ext:
            raise OutcomeUnknownError(f"{queue.broker_name}: {ResponseCode(reply.code).name}, without its offset")
        queue_id = number(reply, "queueId")
        half = Half(
            outgoing.topic,
            outgoing.message_ids[0],
            queue.broker_name,
            number(reply, "queueOffset"),
            _log_offset(reply.ext.get("msgId", "")),
        )
        where = MessageQueue(queue.topic, queue.broker_name, queue_id)
        return Prepared(half, where, reply.code, reply.ext.get("msgId", ""))

    return Question(send(group, outgoing, queue).command, read)


def end(group: str, half: Half, outcome: Outcome, from_check: bool) -> Question[None]:
    """Send the outcome; a broker does not answer UNKNOWN."""
    ext = {
        "topic": half.topic,
        "producerGroup": group,
        "tranStateTableOffset": str(half.half_offset),
        "commitLogOffset": str(half.log_offset),
        "commitOrRollback": str(outcome.value),
        "fromTransactionCheck": "true" if from_check else "false",
        "msgId": half.message_id,
        "transactionId": half.message_id,
        "bname": half.broker_name,
    }
    return Question(request(RequestCode.END_TRANSACTION, ext), nothing)


def read_check(command: Command) -> tuple[str, Check]:
    """Return the producer group of a check, and the check; RemoteProtocolError when it is invalid."""
    found = record.messages(command.body, command.ext.get("bname", ""))
    if len(found) != 1:
        raise RemoteProtocolError(f"a check with {len(found)} messages, expected one")
    (message,) = found
    pairs = {name: value for name, value in message.properties.items() if name != AGE_MS}
    if "gantryAge" in command.ext:
        pairs[AGE_MS] = str(number(command, "gantryAge"))
    message = replace(message, properties=pairs)
    half = Half(
        message.topic,
        command.ext.get("transactionId") or message.message_id,
        message.broker_name,
        number(command, "tranStateTableOffset"),
        number(command, "commitLogOffset"),
    )
    return message.properties.get(PRODUCER_GROUP, ""), Check(half, message)


def _log_offset(message_id: str) -> int:
    try:
        return parse_offset_message_id(message_id)[2]
    except ValueError as error:
        raise RemoteProtocolError(f"reply to a half message: {error}") from error
