"""Filters of consumers: tag expressions and SQL92, and what is compared for them.

A tag expression is `*` or tags joined by `||`; each tag stands in the queue as Java's hash of its text, so
the broker compares numbers and a collision reaches the client, which compares the text.  A message without
tags has the number 0.  An SQL92 expression is about properties, so they are read from the record, but not its body
(`sql92`); the client does not check the result again.

An expression becomes a set of numbers, a program, or None for "every message".  One that is empty (`||`, an empty
SQL expression), that does not compile, or that is of another type than TAG and SQL92 is refused.  RocketMQ serves a
pull whose own SQL does not compile *unfiltered*; we do not.
"""

from __future__ import annotations

from gantry.consume.sql92.program import Program, compile_sql
from gantry.consume.sql92.tokens import SqlError
from gantry.errors import Refusal
from gantry.leaves import hashes
from gantry.model.subscription import ALL_TAGS, SQL_EXPRESSION, TAG_EXPRESSION, tags_of
from gantry.wire.codes import ResponseCode

Wanted = frozenset[int] | Program | None

_NOT_PARSED = "parse the consumer's subscription failed"


def wanted_by(expression_type: str | None, expression: str | None) -> Wanted | Refusal:
    """Return the tag codes or the program of an expression, None for every message, or why it is refused."""
    if not is_tag_filter(expression_type):
        program = compiled(expression_type, expression)
        if isinstance(program, str):
            return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"{_NOT_PARSED}; {program}")
        return program
    if not expression or expression == ALL_TAGS:
        return None
    tags = tags_of(expression)
    if not tags:
        return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, _NOT_PARSED)
    return frozenset(hashes.java_hash(tag) for tag in tags)


def compiled(expression_type: str | None, expression: str | None) -> Program | str:
    """Return the program of an SQL92 expression, or a text that says why there is none."""
    if expression_type != SQL_EXPRESSION:
        return f"expression type {str(expression_type)[:40]!r} is neither {TAG_EXPRESSION} nor {SQL_EXPRESSION}"
    if not expression:
        return "the SQL92 expression is empty"
    try:
        return compile_sql(expression)
    except SqlError as error:
        return str(error)


def fault_of(expression_type: str, expression: str) -> str | None:
    """Return why an SQL92 expression is not valid; None when it is."""
    program = compiled(expression_type, expression)
    return program if isinstance(program, str) else None


def is_tag_filter(expression_type: str | None) -> bool:
    """Return whether the expression is about tags; also when the type is missing or empty."""
    return not expression_type or expression_type == TAG_EXPRESSION
