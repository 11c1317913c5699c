"""Which messages a consumer asked for, as far as the broker can tell from a queue entry.

A tag expression is `*` or tags joined by `||`; each tag stands in the queue as Java's hash of its text, so
the broker compares numbers and a collision reaches the client, which compares the text.  A message without
tags has the number 0.

An expression becomes a set of numbers, or None for "every message".  Other languages (SQL92 on properties)
need the record and not only its entry; `codes_of` is where they will come in, and until then they are
refused.
"""

from __future__ import annotations

from gantry.errors import Refusal
from gantry.leaves import hashes
from gantry.model.subscription import ALL_TAGS, TAG_EXPRESSION, tags_of
from gantry.wire.codes import ResponseCode

_NOT_PARSED = Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")


def codes_of(expression_type: str | None, expression: str | None) -> frozenset[int] | Refusal | None:
    """The tag codes that an expression accepts; None is every message."""
    if not is_tag_filter(expression_type):
        if not expression:
            return _NOT_PARSED
        return Refusal(
            ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {expression_type}"
        )
    if not expression or expression == ALL_TAGS:
        return None
    tags = tags_of(expression)
    if not tags:
        return _NOT_PARSED
    return frozenset(hashes.java_hash(tag) for tag in tags)


def is_tag_filter(expression_type: str | None) -> bool:
    """Whether the expression is about tags; an absent or empty type means so."""
    return not expression_type or expression_type == TAG_EXPRESSION
