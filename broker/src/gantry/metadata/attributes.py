"""Attributes of topics: settings beyond the number of queues, and which of them may be changed later.

A modification is a text of comma-separated steps, `+key=value` to add or change and `-key` to take away;
the table of attributes itself has bare keys (RocketMQ: `AttributeUtil`, `TopicAttributes`).  Every step is
checked before any is applied, so a refused modification changes nothing.

Every attribute that is accepted has its effect.  Attributes that limit messages are applied (`append.topiclimits`).
Of attributes that describe how the topic is stored, only the values that are true of this broker are accepted:
`queue.type=SimpleCQ`, `cleanup.policy=DELETE`, `reserve.time=-1`.  Other values are refused with the reason and with
what to do instead.  This applies to requests of administrators: a topic with such an attribute that comes with a folder
or from a master is accepted, and keeps its attributes.

`queue.type` and `cleanup.policy` can only be given when the topic is made.

Ours are the attributes of HTTP queues (`model.httpqueue`).  A topic gets `gantry.queue.id` once: it is part of every
handle of the queue, so another one comes only with another topic.  The same holds for HTTP topics (`model.httptopic`)
and `gantry.topic.id`.  A topic of the broker is a queue or a topic for the HTTP server, not both.
"""

from __future__ import annotations

from collections.abc import Mapping

from gantry.errors import Refusal
from gantry.model import httpqueue, httptopic
from gantry.wire.codes import ResponseCode

_CHOICES: dict[str, frozenset[str]] = {
    "queue.type": frozenset({"BatchCQ", "SimpleCQ"}),
    "cleanup.policy": frozenset({"DELETE", "COMPACTION"}),
    "message.type": frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY"}),
}
_LONG_MINIMA = {"reserve.time": -1, "message.size.max": 0, "property.count.max": 0}
_LONG_MAX = 2**63 - 1
_UNCHANGEABLE = frozenset({"queue.type", "cleanup.policy"})
# RocketMQ accepts these values; here they would have no effect.
_WITHOUT_EFFECT = {
    ("queue.type", "BatchCQ"): "batches are stored message by message; leave it out",
    ("cleanup.policy", "COMPACTION"): "the log is not compacted; leave it out",
    ("message.type", "PRIORITY"): "pops read all queues evenly, whatever the priority; use a topic for each priority",
}
_RESERVE = "all topics share one log; leave it out, and set store.reserved_hours (fileReservedTime) of the broker"


def altered(current: Mapping[str, str] | None, modification: str) -> dict[str, str] | Refusal:
    """The attributes after the modification; `current` is None for a topic that is being made."""
    steps = _parse(modification)
    if isinstance(steps, Refusal):
        return steps
    result = dict(current or {})
    for key, value in steps.items():
        refusal = _why_not(key, value, current)
        if refusal is not None:
            return refusal
        if value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return _why_not_together(result) or result


def _parse(modification: str) -> dict[str, str | None] | Refusal:
    steps: dict[str, str | None] = {}
    for step in filter(None, (part.strip() for part in modification.split(","))):
        sign, (key, equals, value) = step[0], step[1:].partition("=")
        if sign not in "+-" or not key or (sign == "+") != bool(equals):
            return _refused(f"attribute step {step!r} is neither +key=value nor -key")
        if key in steps:
            return _refused(f"attribute {key} is named twice in one modification")
        steps[key] = value if sign == "+" else None
    return steps


def _why_not(key: str, value: str | None, current: Mapping[str, str] | None) -> Refusal | None:
    if key.startswith((httpqueue.PREFIX, httptopic.PREFIX)):
        return _why_not_over_http(key, value, current or {})
    if key not in _CHOICES and key not in _LONG_MINIMA:
        known = ", ".join(sorted([*_CHOICES, *_LONG_MINIMA]))
        return _refused(f"attribute {key} is not known; known are {known}")
    if value is None and current is None:
        return _refused(f"attribute {key} cannot be taken from a topic that is being made")
    # RocketMQ: an unchangeable attribute is refused even when the new value equals the old one.
    if key in _UNCHANGEABLE and current is not None:
        return _refused(f"attribute {key} cannot be changed after the topic is made")
    if value is not None and not _is_legal(key, value):
        return _refused(f"attribute {key} cannot have the value {value[:64]!r}")
    if value is not None and (why := _why_no_effect(key, value)):
        return _refused(f"attribute {key}={value} is not supported: {why}")
    return None


def _why_not_over_http(key: str, value: str | None, current: Mapping[str, str]) -> Refusal | None:
    if key in (httpqueue.ID, httptopic.ID) and current.get(key, value) != value:
        return _refused(f"attribute {key} cannot be changed; delete the topic and make it again")
    check = httpqueue.fault if key.startswith(httpqueue.PREFIX) else httptopic.fault
    fault = "" if value is None else check(key, value)
    return _refused(f"attribute {key[:64]} cannot have the value {(value or '')[:32]!r}: {fault}") if fault else None


def _why_not_together(attributes: Mapping[str, str]) -> Refusal | None:
    if httpqueue.is_queue(attributes) and httptopic.is_topic(attributes):
        return _refused("a topic is a queue or a topic for the HTTP server, not both; choose another name")
    if httptopic.is_full(attributes):
        return _refused(f"{httptopic.SUBSCRIPTIONS_MAX} subscriptions are there, no more are allowed; unsubscribe some")
    return None


def _why_no_effect(key: str, value: str) -> str:
    if key == "reserve.time":
        return "" if int(value) == -1 else _RESERVE
    return _WITHOUT_EFFECT.get((key, value), "")


def _is_legal(key: str, value: str) -> bool:
    if key in _CHOICES:
        return value in _CHOICES[key]
    digits = value[1:] if value.startswith("-") else value
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        return False
    return _LONG_MINIMA[key] <= int(value) <= _LONG_MAX


def _refused(remark: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, remark)
