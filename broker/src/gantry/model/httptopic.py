"""HTTP topics as topics of the broker: the names of attributes that the server and the broker share.

An HTTP topic is a topic of the same name with the attribute `gantry.topic.id`.  Each of its subscriptions is one
attribute, `gantry.topic.sub.NAME`, whose value only the server reads.  A topic of the broker is a queue of the HTTP
server or a topic of it, not both: what is published would otherwise stand in a queue.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIX = "gantry.topic."
ID = f"{PREFIX}id"
SIZE_MAX = f"{PREFIX}size_max"
LOGGING = f"{PREFIX}logging"
CREATED_S = f"{PREFIX}created_s"
MODIFIED_S = f"{PREFIX}modified_s"
SUBSCRIPTION = f"{PREFIX}sub."
GROUP_PREFIX = "gantry-sub-"
"""Begins the name of the group of each subscription."""

SUBSCRIPTIONS_MAX = 200
"""How many attributes of subscriptions a topic may have, those of deleted ones included."""
SUBSCRIPTION_VALUE_MAX = 2048

_ID = re.compile(r"[0-9a-f]{16}\Z")
_NUMBER = re.compile(r"[0-9]{1,12}\Z")
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,119}\Z")
_TEXT = re.compile(rf"[0-9A-Za-z_-]{{1,{SUBSCRIPTION_VALUE_MAX}}}\Z")


def fault(name: str, value: str) -> str:
    """Return what is wrong with this attribute of a topic; an empty text when it may be stored."""
    if name == ID:
        return "" if _ID.match(value) else "expected 16 hexadecimal digits in lower case"
    if name == LOGGING:
        return "" if value in ("true", "false") else "expected true or false"
    if name in (SIZE_MAX, CREATED_S, MODIFIED_S):
        return "" if _NUMBER.match(value) else "expected a number of at most 12 digits"
    if not name.startswith(SUBSCRIPTION):
        return f"no such attribute; known are {CREATED_S}, {ID}, {LOGGING}, {MODIFIED_S}, {SIZE_MAX}"
    if not _NAME.match(name.removeprefix(SUBSCRIPTION)):
        return "the name of a subscription has up to 120 letters, digits, - and _"
    return "" if _TEXT.match(value) else f"expected base64url of at most {SUBSCRIPTION_VALUE_MAX} characters"


def is_topic(attributes: Mapping[str, str]) -> bool:
    """Return whether a topic with these attributes is an HTTP topic."""
    return ID in attributes


def is_full(attributes: Mapping[str, str]) -> bool:
    """Return whether a topic has more attributes of subscriptions than it may have."""
    return sum(name.startswith(SUBSCRIPTION) for name in attributes) > SUBSCRIPTIONS_MAX
