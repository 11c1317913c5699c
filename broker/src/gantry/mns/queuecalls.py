"""Calls about queues: create, attributes, list, delete.

All of them are safe to repeat after an unknown outcome: each says what shall be, not what shall change, and a second
creation with equal attributes is answered like the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gantry.errors import RemoteProtocolError
from gantry.mns.documents import XmlNode, document, element
from gantry.mns.exchange import Call, HttpAnswer, Repeat, refused
from gantry.mns.values import QueueAttributes, QueuePage, QueueStatus

NAME_MAX = 120
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_ELEMENTS = {
    "DelaySeconds": "delay_s",
    "MaximumMessageSize": "size_max",
    "MessageRetentionPeriod": "life_s",
    "VisibilityTimeout": "visibility_s",
    "PollingWaitSeconds": "wait_s",
}


def checked_name(name: str) -> str:
    """Return the name of a queue; ValueError unless it is 1 to 120 of letters, digits, - and _, no sign first."""
    if len(name) > NAME_MAX or not _NAME.fullmatch(name):
        raise ValueError(
            f"queue name {name[:130]!r}: expected 1 to {NAME_MAX} letters, digits, - and _, a letter or digit first"
        )
    return name


def create(name: str, attributes: QueueAttributes) -> Call[bool]:
    """Make a queue: True when it is new, False when it was there with equal attributes; else QueueAlreadyExistError."""
    return Call("PUT", _path(name), _created, Repeat.SAFE, _document(attributes))


def set_attributes(name: str, attributes: QueueAttributes) -> Call[None]:
    """Change the attributes that are not None; QueueNotExistError without the queue."""
    return Call("PUT", f"{_path(name)}?metaoverride=true", done, Repeat.SAFE, _document(attributes))


def get(name: str) -> Call[QueueStatus]:
    """Ask for attributes and counts; QueueNotExistError without the queue."""
    return Call("GET", _path(name), _status, Repeat.SAFE)


def delete(name: str) -> Call[None]:
    """Delete a queue with all its messages; a queue that is not there counts as deleted."""
    return Call("DELETE", _path(name), done, Repeat.SAFE)


def list_page(prefix: str, marker: str, count: int) -> Call[QueuePage]:
    """Ask for at most `count` (1 to 1000) names that begin with `prefix`, from `marker` on (empty: the first page)."""
    if not 1 <= count <= 1000:
        raise ValueError(f"{count} names a page: expected 1 to 1000")
    given = (("x-mns-prefix", prefix), ("x-mns-marker", marker), ("x-mns-ret-number", str(count)))
    for name, value in given:
        if not value.isascii() or not (value.isprintable() or not value):
            raise ValueError(f"{name} {value!r}: expected printable ASCII characters")
    return Call("GET", "/queues", _page, Repeat.SAFE, headers=tuple(each for each in given if each[1]))


def done(answer: HttpAnswer) -> None:
    """Read an answer without content; raise what it refuses."""
    if answer.status >= 300:
        raise refused(answer)


def number(node: XmlNode, name: str) -> int:
    """Return a child as a whole number, 0 when it is missing; RemoteProtocolError when it is none."""
    text = node.get(name) or "0"
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise RemoteProtocolError(f"{name} of the answer is {text[:40]!r}: expected a whole number")
    return int(text)


def _path(name: str) -> str:
    return f"/queues/{checked_name(name)}"


def _document(attributes: QueueAttributes) -> bytes:
    return document("Queue", _elements(attributes))


def _elements(attributes: QueueAttributes) -> Iterable[str]:
    for name, attribute in _ELEMENTS.items():
        value = getattr(attributes, attribute)
        if value is not None:
            if value < 0:
                raise ValueError(f"{attribute} is {value}: expected 0 or more")
            yield element(name, str(value))
    if attributes.logging is not None:
        yield element("LoggingEnabled", str(attributes.logging))


def _created(answer: HttpAnswer) -> bool:
    done(answer)
    return answer.status == 201


def _status(answer: HttpAnswer) -> QueueStatus:
    done(answer)
    node = answer.document()
    attributes = {attribute: number(node, name) for name, attribute in _ELEMENTS.items()}
    counts = (number(node, name) for name in ("ActiveMessages", "InactiveMessages", "DelayMessages"))
    created_s, modified_s = number(node, "CreateTime"), number(node, "LastModifyTime")
    is_logged = (node.get("LoggingEnabled") or "").lower() == "true"
    return QueueStatus(
        node.get("QueueName") or "", QueueAttributes(**attributes, logging=is_logged), created_s, modified_s, *counts
    )


def _page(answer: HttpAnswer) -> QueuePage:
    done(answer)
    node = answer.document()
    urls = [each.get("QueueURL") or "" for each in node.all("Queue")]
    return QueuePage(tuple(url.rpartition("/")[2] for url in urls), node.get("NextMarker") or "")
