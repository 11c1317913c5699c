"""HTTP queues as topics: the names that the server of HTTP queues and the broker share.

A queue is a topic of the same name with the attribute `gantry.queue.id`.  Its priority p, from 1 to 16, is queue p - 1
of the topic.  One fixed group consumes it.  The broker reads two of the attributes: a topic with `gantry.queue.id` is a
queue, and `gantry.queue.life_s` ends a message so many seconds after it was born.  The others are kept for the server.
"""

from __future__ import annotations

from collections.abc import Mapping

GROUP = "gantry-queues"
"""The group that consumes every queue."""
PRIORITIES = 16
RETRIES_MAX = (1 << 31) - 2
"""Of the groups of queues and subscriptions: the broker makes no dead letters of their messages."""

PREFIX = "gantry.queue."
ID = f"{PREFIX}id"
DELAY_S = f"{PREFIX}delay_s"
SIZE_MAX = f"{PREFIX}size_max"
LIFE_S = f"{PREFIX}life_s"
VISIBILITY_S = f"{PREFIX}visibility_s"
WAIT_S = f"{PREFIX}wait_s"
LOGGING = f"{PREFIX}logging"
CREATED_S = f"{PREFIX}created_s"
MODIFIED_S = f"{PREFIX}modified_s"

LIFE_S_MAX = 15 * 86_400
DELAY_S_MAX = 7 * 86_400
DELAY_MS_MAX = DELAY_S_MAX * 1000

NUMBERS: Mapping[str, tuple[int, int]] = {
    DELAY_S: (0, DELAY_S_MAX),
    SIZE_MAX: (1, 1 << 30),
    LIFE_S: (1, LIFE_S_MAX),
    VISIBILITY_S: (1, 12 * 3600),
    WAIT_S: (0, 30),
    CREATED_S: (0, 1 << 40),
    MODIFIED_S: (0, 1 << 40),
}
"""Attributes that are numbers, with the smallest and the largest value that a broker accepts."""

_ID_DIGITS = 16
_HEXADECIMAL = frozenset("0123456789abcdef")
_NUMBER_DIGITS_MAX = 15


def fault(name: str, value: str) -> str:
    """Return what is wrong with this attribute of a queue; an empty text when it may be stored."""
    if name == ID:
        is_id = len(value) == _ID_DIGITS and _HEXADECIMAL.issuperset(value)
        return "" if is_id else f"expected {_ID_DIGITS} hexadecimal digits in lower case"
    if name == LOGGING:
        return "" if value in ("true", "false") else "expected true or false"
    if name not in NUMBERS:
        return f"no such attribute; known are {', '.join(sorted([ID, LOGGING, *NUMBERS]))}"
    low, high = NUMBERS[name]
    number = _number(value)
    return "" if number is not None and low <= number <= high else f"expected a number from {low} to {high}"


def is_queue(attributes: Mapping[str, str]) -> bool:
    """Return whether a topic with these attributes is a queue."""
    return ID in attributes


def life_ms(attributes: Mapping[str, str]) -> int | None:
    """Return for how many ms after its birth a message of a topic with these attributes lives; None: no limit."""
    life_s = _number(attributes.get(LIFE_S, "")) if ID in attributes else None
    return None if life_s is None else life_s * 1000


def _number(text: str) -> int | None:
    is_plain = text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX
    return int(text) if is_plain else None
