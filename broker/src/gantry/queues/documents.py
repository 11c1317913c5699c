"""The documents about messages: what clients send, and what they get.  Pure.

A body is text here.  What a remoting producer sent that XML cannot hold (other bytes than UTF-8, control characters)
is given as base64.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from gantry.client.popped import PoppedMessage
from gantry.model.httpqueue import DELAY_S_MAX, PRIORITIES
from gantry.model.message import StoredMessage
from gantry.queues import userproperties, xmlout
from gantry.queues.attributes import PRIORITY_DEFAULT, whole
from gantry.queues.faults import QueueFaultError, invalid, malformed
from gantry.queues.sending import PostedMessage, QueuePost, md5
from gantry.queues.xmlin import XmlElement

BATCH_MAX = 16
_FIRST_POP_MS = "1ST_POP_TIME"


def posts(root: XmlElement) -> tuple[list[QueuePost], bool]:
    """Return the messages of a `Message` or `Messages` document, and whether it was the second."""
    if root.name == "Message":
        return [_post(root)], False
    if root.name != "Messages":
        raise malformed(f"the root of the document is {root.name[:40]!r}, expected Message or Messages")
    children = [child for child in root.children if child.name == "Message"]
    if not 0 < len(children) <= BATCH_MAX:
        raise invalid(f"{len(children)} messages in one call, expected 1 to {BATCH_MAX}")
    return [_post(child) for child in children], True


def receipt_handles(root: XmlElement) -> list[str]:
    """Return the handles of a `ReceiptHandles` document."""
    if root.name != "ReceiptHandles":
        raise malformed(f"the root of the document is {root.name[:40]!r}, expected ReceiptHandles")
    found = [child.text.strip() for child in root.children if child.name == "ReceiptHandle"]
    if not 0 < len(found) <= BATCH_MAX:
        raise invalid(f"{len(found)} handles in one call, expected 1 to {BATCH_MAX}")
    return found


def posted(message: PostedMessage) -> str:
    """Return the content of `Message` for a stored message."""
    handle = f"<ReceiptHandle>{message.handle}</ReceiptHandle>" if message.handle else ""
    return f"<MessageId>{message.message_id}</MessageId><MessageBodyMD5>{message.body_md5}</MessageBodyMD5>{handle}"


def all_posted(results: Sequence[PostedMessage | QueueFaultError]) -> bytes:
    """Return the answer to a batch; failed messages say why."""
    contents = [
        posted(one)
        if isinstance(one, PostedMessage)
        else xmlout.element("ErrorCode", one.code) + xmlout.element("ErrorMessage", one.text)
        for one in results
    ]
    return xmlout.listing("Messages", "Message", contents)


def received(popped: PoppedMessage, handle: str) -> str:
    """Return the content of `Message` for a received message."""
    receipt = popped.receipt
    assert receipt is not None, "a message without a receipt is not delivered"
    visible_ms = receipt.pop_ms + receipt.invisible_ms
    leased = f"<ReceiptHandle>{handle}</ReceiptHandle><NextVisibleTime>{visible_ms}</NextVisibleTime>"
    return _message(popped.stored, leased, receipt.pop_ms)


def peeked(stored: StoredMessage) -> str:
    """Return the content of `Message` for a message that was only looked at."""
    return _message(stored, "", 0)


def deletion_errors(failed: Sequence[tuple[str, QueueFaultError]]) -> bytes:
    """Return the answer to a batch of deletes in which some failed: handles and why."""
    return xmlout.listing(
        "Errors",
        "Error",
        [
            xmlout.element("ErrorCode", fault.code)
            + xmlout.element("ErrorMessage", fault.text)
            + xmlout.element("ReceiptHandle", shown(handle))
            for handle, fault in failed
        ],
    )


def shown(text: str) -> str:
    """Return a client's text as far as XML can hold it."""
    return "".join(character if xmlout.is_text(character) else "?" for character in text[:2048])


def _message(stored: StoredMessage, leased: str, pop_ms: int) -> str:
    text = text_of(stored.body)
    first_ms = stored.properties.get(_FIRST_POP_MS, "")
    if not (first_ms.isascii() and first_ms.isdecimal()):
        first_ms = str(pop_ms)
    attempt = stored.reconsume_times + (1 if leased else 0)
    return (
        f"<MessageId>{xmlout.escaped(stored.message_id)}</MessageId>{leased}"
        f"<MessageBody>{xmlout.escaped(text)}</MessageBody><MessageBodyMD5>{md5(text.encode())}</MessageBodyMD5>"
        f"<EnqueueTime>{stored.born_ms}</EnqueueTime><FirstDequeueTime>{first_ms}</FirstDequeueTime>"
        f"<DequeueCount>{attempt}</DequeueCount><Priority>{stored.queue_id % PRIORITIES + 1}</Priority>"
        f"{userproperties.written(stored.properties)}"
    )


def text_of(body: bytes) -> str:
    """Return a body as text; base64 where it is no text that XML can hold."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return base64.b64encode(body).decode()
    return text if xmlout.is_text(text) else base64.b64encode(body).decode()


def _post(element: XmlElement) -> QueuePost:
    texts = element.child_texts()
    priority, delay = texts.get("Priority", "").strip(), texts.get("DelaySeconds", "").strip()
    return QueuePost(
        texts.get("MessageBody", "").encode(),
        whole("Priority", priority, 1, PRIORITIES) if priority else PRIORITY_DEFAULT,
        whole("DelaySeconds", delay, 0, DELAY_S_MAX) if delay else None,
        userproperties.read(element),
    )
