"""Calls about messages, and which of them are safe to repeat after an unknown outcome.

    send, send_many         no: the message might be there twice.  `repeat=SAFE` is for messages that nobody sees yet
    receive, receive_many   yes: a message whose answer was lost is visible again after its visibility timeout
    peek, peek_many         yes: they change nothing
    delete, delete_many     yes: but after a lost answer the second attempt says MessageNotExistError of a deleted one
    change_visibility       no: the new receipt handle was in the lost answer
    commit                  yes: it is a change of visibility whose new handle nobody needs

A digest that does not fit the text is a RemoteProtocolError: something between client and server changed the body.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import quote

from gantry.errors import RemoteProtocolError
from gantry.mns.documents import XmlNode, document, element
from gantry.mns.errors import ItemFailure, MessageNotExistError, PartialDeleteError, PartialSendError
from gantry.mns.exchange import Call, HttpAnswer, Repeat, refused
from gantry.mns.queuecalls import checked_name, done, number
from gantry.mns.values import (
    BATCH_MAX,
    HANDLE_MAX,
    PRIORITY_MAX,
    ChangedVisibility,
    NewMessage,
    QueueMessage,
    StoredReceipt,
    text_md5,
)  # fmt: skip

_FAILURE = ("ErrorCode", "ErrorMessage", "ReceiptHandle")


def send(queue: str, message: NewMessage, repeat: Repeat = Repeat.UNSENT) -> Call[StoredReceipt]:
    """Store one message."""

    def read(answer: HttpAnswer) -> StoredReceipt:
        done(answer)
        return _stored(answer.document(), message.text)

    return Call("POST", _path(queue), read, repeat, document("Message", _elements(message)))


def send_many(queue: str, messages: Sequence[NewMessage]) -> Call[tuple[StoredReceipt, ...]]:
    """Store 1 to 16 messages; PartialSendError says what became of each when some were refused."""
    _check_count(len(messages))

    def read(answer: HttpAnswer) -> tuple[StoredReceipt, ...]:
        results = _results(answer, messages)
        stored = tuple(each for each in results if isinstance(each, StoredReceipt))
        if len(stored) < len(results):
            raise PartialSendError(results)
        return stored

    body = document("Messages", (element("Message", _elements(each)) for each in messages))
    return Call("POST", _path(queue), read, Repeat.UNSENT, body)


def receive_many(queue: str, count: int, wait_s: int | None = None) -> Call[tuple[QueueMessage, ...]]:
    """Lease up to `count` (1 to 16) messages; none: an empty tuple.  `wait_s` of None: the queue's own wait holds."""
    _check_count(count)
    if wait_s is not None and not 0 <= wait_s <= 30:
        raise ValueError(f"wait_s is {wait_s}: expected 0 to 30")
    wait = "" if wait_s is None else f"&waitseconds={wait_s}"
    held_s = 30 if wait_s is None else wait_s
    return Call("GET", f"{_path(queue)}?numOfMessages={count}{wait}", _messages, Repeat.SAFE, wait_s=held_s)


def peek_many(queue: str, count: int) -> Call[tuple[QueueMessage, ...]]:
    """Look at up to `count` (1 to 16) visible messages without leasing them; none: an empty tuple."""
    _check_count(count)
    return Call("GET", f"{_path(queue)}?peekonly=true&numOfMessages={count}", _messages, Repeat.SAFE)


def delete(queue: str, handle: str) -> Call[None]:
    """Delete a message; MessageNotExistError when the handle is void, ReceiptHandleError when it is none."""
    return Call("DELETE", f"{_path(queue)}?ReceiptHandle={_quoted(handle)}", done, Repeat.SAFE)


def delete_many(queue: str, handles: Sequence[str]) -> Call[None]:
    """Delete 1 to 16 messages; PartialDeleteError names those whose handles were void."""
    _check_count(len(handles))
    body = document("ReceiptHandles", (element("ReceiptHandle", checked_handle(each)) for each in handles))
    return Call("DELETE", _path(queue), _deleted_many, Repeat.SAFE, body)


def change_visibility(
    queue: str, handle: str, visibility_s: int, repeat: Repeat = Repeat.UNSENT
) -> Call[ChangedVisibility]:
    """Let a message be visible in `visibility_s` seconds (1 to 43200) from now; the old handle is void then."""
    if not 1 <= visibility_s <= 43_200:
        raise ValueError(f"visibility_s is {visibility_s}: expected 1 to 43200")
    target = f"{_path(queue)}?ReceiptHandle={_quoted(handle)}&VisibilityTimeout={visibility_s}"
    return Call("PUT", target, _changed, repeat)


def checked_handle(handle: str) -> str:
    """Return a receipt handle; ValueError unless it is 1 to 512 printable ASCII characters without blanks."""
    if not 1 <= len(handle) <= HANDLE_MAX or not handle.isascii() or not handle.isprintable() or " " in handle:
        raise ValueError(f"receipt handle {handle[:80]!r}: expected 1 to {HANDLE_MAX} printable ASCII characters")
    return handle


def _path(queue: str) -> str:
    return f"/queues/{checked_name(queue)}/messages"


def _quoted(handle: str) -> str:
    return quote(checked_handle(handle), safe="")


def _check_count(count: int) -> None:
    if not 1 <= count <= BATCH_MAX:
        raise ValueError(f"{count} messages in one request: expected 1 to {BATCH_MAX}")


def _elements(message: NewMessage) -> Iterable[str]:
    yield element("MessageBody", message.text)
    if message.delay_s is not None:
        if message.delay_s < 0:
            raise ValueError(f"delay_s is {message.delay_s}: expected 0 or more")
        yield element("DelaySeconds", str(message.delay_s))
    if message.priority is not None:
        if not 1 <= message.priority <= PRIORITY_MAX:
            raise ValueError(f"priority is {message.priority}: expected 1 to {PRIORITY_MAX}, 1 first")
        yield element("Priority", str(message.priority))


def _stored(node: XmlNode, text: str) -> StoredReceipt:
    digest = node.get("MessageBodyMD5")
    if digest is not None and digest.upper() != text_md5(text):
        raise RemoteProtocolError(f"the server stored a body of digest {digest[:40]}, sent was {text_md5(text)}")
    return StoredReceipt(_required(node, "MessageId"), node.get("ReceiptHandle") or "")


def _results(answer: HttpAnswer, messages: Sequence[NewMessage]) -> tuple[StoredReceipt | ItemFailure, ...]:
    if answer.status >= 300 and (answer.status < 500 or b"<Messages" not in answer.body):
        raise refused(answer)
    nodes = answer.document().all("Message")
    if len(nodes) != len(messages):
        raise RemoteProtocolError(f"the answer has {len(nodes)} messages, sent were {len(messages)}")
    return tuple(
        _stored(node, message.text)
        if node.get("ErrorCode") is None
        else ItemFailure(node.get("ErrorCode") or "", node.get("ErrorMessage") or "")
        for node, message in zip(nodes, messages, strict=True)
    )


def _messages(answer: HttpAnswer) -> tuple[QueueMessage, ...]:
    if answer.status >= 300:
        error = refused(answer)
        if isinstance(error, MessageNotExistError):
            return ()
        raise error
    root = answer.document()
    return tuple(_message(node) for node in ([root] if root.name == "Message" else root.all("Message")))


def _message(node: XmlNode) -> QueueMessage:
    text, digest = node.get("MessageBody") or "", node.get("MessageBodyMD5")
    if digest is not None and digest.upper() != text_md5(text):
        raise RemoteProtocolError(f"a body of digest {text_md5(text)} came with the digest {digest[:40]}")
    return QueueMessage(
        message_id=_required(node, "MessageId"),
        text=text,
        handle=node.get("ReceiptHandle") or "",
        enqueued_ms=number(node, "EnqueueTime"),
        next_visible_ms=number(node, "NextVisibleTime"),
        first_dequeued_ms=number(node, "FirstDequeueTime"),
        dequeue_count=number(node, "DequeueCount"),
        priority=number(node, "Priority"),
    )


def _deleted_many(answer: HttpAnswer) -> None:
    if answer.status == 404 and b"<Errors" in answer.body:
        items = answer.document().all("Error")
        failures = tuple(ItemFailure(*(node.get(name) or "" for name in _FAILURE)) for node in items)
        if failures:
            raise PartialDeleteError(failures)
    done(answer)


def _changed(answer: HttpAnswer) -> ChangedVisibility:
    done(answer)
    node = answer.document()
    return ChangedVisibility(node.get("ReceiptHandle") or "", number(node, "NextVisibleTime"))


def _required(node: XmlNode, name: str) -> str:
    value = node.get(name)
    if not value:
        raise RemoteProtocolError(f"the answer has no {name}")
    return value
