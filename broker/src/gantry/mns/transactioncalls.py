"""The five calls of a transaction queue.  All of them are safe to repeat.

    prepare    a second attempt may leave a message that nobody knows: it is never visible and ends with its life
    log        a second attempt may leave a second log: its check finds the message settled
    commit     a change of visibility to one second, whose new handle nobody needs; a void handle is an answer
    rollback   a deletion; a void handle is an answer
    confirm    a deletion of the operation log; a void handle is an answer

Each answer says what the state machine needs to know, and nothing of the server's documents.
"""

from __future__ import annotations

from dataclasses import dataclass

from gantry.errors import RemoteProtocolError
from gantry.mns import messagecalls
from gantry.mns.errors import MessageNotExistError
from gantry.mns.exchange import Call, HttpAnswer, Repeat
from gantry.mns.transactionrules import COMMIT_VISIBILITY_S, log_queue, log_text
from gantry.mns.transactionsteps import Settlement, after_commit
from gantry.mns.values import NewMessage


@dataclass(frozen=True, slots=True)
class PreparedMessage:
    """A message that is not visible: its receipt handle, and the earliest end of its life by the server's clock."""

    message_id: str
    handle: str
    ends_ms: int


def prepare(
    queue: str, body: str | bytes, life_s: int, delay_s: int, priority: int | None = None
) -> Call[PreparedMessage]:
    """Store a message whose delay is longer than its life.

    It names the delay, as the vendor's library does not: the queue's may have been changed since it was looked at.
    """
    send = messagecalls.send(queue, NewMessage(body, delay_s=delay_s, priority=priority), Repeat.SAFE)

    def read(answer: HttpAnswer) -> PreparedMessage:
        stored = send.read(answer)
        if not stored.handle:
            raise RemoteProtocolError(
                f"queue {queue}: message {stored.message_id} has no receipt handle, so it is visible; "
                "does the server take delays?"
            )
        return PreparedMessage(stored.message_id, stored.handle, answer.earliest_ms + life_s * 1000)

    return Call(send.method, send.target, read, send.repeat, send.body)


def log(queue: str, handle: str, timeout_s: int) -> Call[str]:
    """Store the operation log of a prepared message; it becomes visible after `timeout_s`.  Return its handle."""
    name = log_queue(queue)
    send = messagecalls.send(name, NewMessage(log_text(handle), delay_s=timeout_s), Repeat.SAFE)

    def read(answer: HttpAnswer) -> str:
        stored = send.read(answer)
        if not stored.handle:
            raise RemoteProtocolError(f"queue {name}: a message with a delay of {timeout_s} s has no receipt handle")
        return stored.handle

    return Call(send.method, send.target, read, send.repeat, send.body)


def commit(queue: str, handle: str, ends_ms: int) -> Call[Settlement]:
    """Make a prepared message visible; LATE when its life may have ended, see `after_commit`."""
    change = messagecalls.change_visibility(queue, handle, COMMIT_VISIBILITY_S, Repeat.SAFE)

    def read(answer: HttpAnswer) -> Settlement:
        try:
            next_visible_ms = change.read(answer).next_visible_ms
        except MessageNotExistError:
            return after_commit(None, answer.latest_ms, ends_ms)
        return after_commit(next_visible_ms, answer.latest_ms, ends_ms)

    return Call(change.method, change.target, read, change.repeat)


def rollback(queue: str, handle: str) -> Call[Settlement]:
    """Delete a prepared message; BEFORE when its handle was void."""
    return _deletion(queue, handle)


def confirm(queue: str, log_handle: str) -> Call[Settlement]:
    """Delete an operation log; BEFORE when its handle was void, and another check may have it."""
    return _deletion(log_queue(queue), log_handle)


def _deletion(queue: str, handle: str) -> Call[Settlement]:
    delete = messagecalls.delete(queue, handle)

    def read(answer: HttpAnswer) -> Settlement:
        try:
            delete.read(answer)
        except MessageNotExistError:
            return Settlement.BEFORE
        return Settlement.NOW

    return Call(delete.method, delete.target, read, delete.repeat)
