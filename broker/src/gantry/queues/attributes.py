"""What a queue is: the attributes of its topic, and the documents that clients set and get.  Pure.

A queue is a topic with the attribute `gantry.queue.id`, its incarnation: 16 hex digits that are made when the queue is
created, and are part of every handle.  So handles of a deleted queue are void when it is created again; that none of
its messages come back is the broker's promise about topics.
Ranges and defaults are those of MNS's documents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from gantry.model import httpqueue
from gantry.model.names import is_system_topic
from gantry.queues import xmlout
from gantry.queues.faults import QueueFaultError, invalid, malformed
from gantry.queues.xmlin import XmlElement

PRIORITY_DEFAULT = 8
SIZE_MAX = 65_536
VISIBILITY_S_MAX = 12 * 3600
WAIT_S_MAX = 30
_NAME_CHARACTERS_MAX = 120
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]*\Z")


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What a client may set; times in seconds, sizes in bytes."""

    delay_s: int = 0
    size_max: int = SIZE_MAX
    life_s: int = 345_600
    visibility_s: int = 30
    wait_s: int = 0
    is_logging: bool = False


@dataclass(frozen=True, slots=True)
class KnownQueue:
    """A queue that exists; instants in seconds since the epoch."""

    name: str
    incarnation: str
    settings: QueueSettings = QueueSettings()
    created_s: int = 0
    modified_s: int = 0


# Name in documents -> field, least and greatest value.
_NUMBERS = {
    "DelaySeconds": ("delay_s", 0, httpqueue.DELAY_S_MAX),
    "MaximumMessageSize": ("size_max", 1024, SIZE_MAX),
    "MessageRetentionPeriod": ("life_s", 60, httpqueue.LIFE_S_MAX),
    "VisibilityTimeout": ("visibility_s", 1, VISIBILITY_S_MAX),
    "PollingWaitSeconds": ("wait_s", 0, WAIT_S_MAX),
}
_LOGGING = "LoggingEnabled"


def check_name(name: str) -> str:
    """Return the name of a queue; QueueFaultError 400 when it is none."""
    if not 0 < len(name) <= _NAME_CHARACTERS_MAX:
        text = f"the name of a queue has {len(name)} characters, expected 1 to {_NAME_CHARACTERS_MAX}"
        raise QueueFaultError(400, "QueueNameLengthError", text)
    if not _NAME.match(name) or is_system_topic(name):
        text = f"{name!r} is no name of a queue; use letters, digits, - and _, with a letter or digit first"
        raise invalid(text)
    return name


def whole(name: str, text: str, low: int, high: int) -> int:
    """Return a number of a document or query; QueueFaultError 400 when it is none, or outside the range."""
    text = text.strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and low <= int(text) <= high):
        raise invalid(f"{name} is {text[:40]!r}, expected a whole number from {low} to {high}")
    return int(text)


def asked(root: XmlElement, base: QueueSettings) -> QueueSettings:
    """Return `base` with what a `Queue` document changes; QueueFaultError 400 for values that are not allowed.

    Elements that are not known are ignored: SDKs send what the service once added.
    """
    if root.name != "Queue":
        raise malformed(f"the root of the document is {root.name[:40]!r}, expected Queue")
    changes: dict[str, int | bool] = {}
    for child in root.children:
        if child.name in _NUMBERS and child.text.strip():
            field, low, high = _NUMBERS[child.name]
            changes[field] = whole(child.name, child.text, low, high)
        elif child.name == _LOGGING and child.text.strip():
            changes["is_logging"] = _boolean(child.text.strip())
    return replace(base, **changes)  # type: ignore[arg-type]


def stored(queue: KnownQueue) -> dict[str, str]:
    """Return the attributes of the queue's topic."""
    found = {
        httpqueue.ID: queue.incarnation,
        httpqueue.CREATED_S: str(queue.created_s),
        httpqueue.MODIFIED_S: str(queue.modified_s),
    }
    for field in fields(QueueSettings):
        value = getattr(queue.settings, field.name)
        found[_key(field.name)] = str(value).lower()
    return found


def of_topic(name: str, given: Mapping[str, str]) -> KnownQueue | None:
    """Return the queue of a topic with these attributes; None when it is a topic only.

    Values that cannot be read count as the default, so that a queue can always be set right over HTTP.
    """
    incarnation = given.get(httpqueue.ID, "")
    if not incarnation:
        return None
    values: dict[str, int | bool] = {"is_logging": given.get(_key("is_logging")) == "true"}
    for field, _, _ in _NUMBERS.values():
        text = given.get(_key(field), "")
        if text.isascii() and text.isdecimal() and len(text) < 12:
            values[field] = int(text)
    instants = [_seconds(given.get(key, "")) for key in (httpqueue.CREATED_S, httpqueue.MODIFIED_S)]
    return KnownQueue(name, incarnation, QueueSettings(**values), *instants)  # type: ignore[arg-type]


def described(attributes: QueueSettings) -> str:
    """Return the attributes as elements of a document."""
    numbers = [xmlout.element(name, getattr(attributes, field)) for name, (field, _, _) in _NUMBERS.items()]
    return "".join(numbers) + xmlout.element(_LOGGING, attributes.is_logging)


def _key(field: str) -> str:
    return f"{httpqueue.PREFIX}{field.removeprefix('is_')}"


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise invalid(f"{_LOGGING} is {text[:40]!r}, expected True or False")
    return text.lower() == "true"


def _seconds(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else 0
