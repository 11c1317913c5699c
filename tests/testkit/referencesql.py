"""SQL92 on properties a second time: slow, on texts, sharing nothing with `gantry.consume.sql92`.

Expressions are nested tuples that know how to write themselves as SQL; `outcome` says what RocketMQ makes of one for a
message: True, False, None (unknown) or "raises".  The values carry Java's types by name, and every operation is
spelled out as `ComparisonExpression.__compare` and `UnaryExpression` have it.

    ("property", "a")  ("text", "x")  ("int", "5")  ("float", "5.5")  ("bool", True)  ("null",)
    ("not", e)  ("minus", e)  ("and", e, f)  ("or", e, f)  ("=", e, f)  ("<>", e, f)  ("<", e, f) and so on
    ("between", e, low, high, negated)  ("in", "a", texts, negated)  ("null?", e, negated)
    ("contains" or "startswith" or "endswith", e, text, negated)
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

Expression = tuple[Any, ...]
Properties = dict[str, str]

_DIGITS = set("0123456789")


class Raises(Exception):  # noqa: N818  it says what an evaluation does
    """A Java exception while evaluating."""


def sql(e: Expression) -> str:
    """The expression as text, with all brackets."""
    kind = e[0]
    if kind == "property":
        return str(e[1])
    if kind == "text":
        return _quoted(e[1])
    if kind in ("int", "float"):
        return str(e[1])
    if kind == "bool":
        return "TRUE" if e[1] else "FALSE"
    if kind == "null":
        return "NULL"
    if kind == "not":
        return f"NOT ({sql(e[1])})"
    if kind == "minus":
        return f"- ({sql(e[1])})"
    if kind == "null?":
        return f"({sql(e[1])}) IS {'NOT ' if e[2] else ''}NULL"
    if kind == "between":
        return f"({sql(e[1])}) {'NOT ' if e[4] else ''}BETWEEN ({sql(e[2])}) AND ({sql(e[3])})"
    if kind == "in":
        return f"{e[1]} {'NOT ' if e[3] else ''}IN ({', '.join(map(_quoted, e[2]))})"
    if kind in ("contains", "startswith", "endswith"):
        return f"({sql(e[1])}) {'NOT ' if e[3] else ''}{kind.upper()} {_quoted(e[2])}"
    return f"({sql(e[1])}) {kind.upper()} ({sql(e[2])})"


def outcome(e: Expression, properties: Properties) -> object:
    """True, False, None or "raises"."""
    try:
        kind, value = _evaluate(_boolean(e), properties)
    except Raises:
        return "raises"
    assert kind in ("Boolean", "null")
    return value


def compiles(e: Expression) -> bool:
    """Whether RocketMQ's parser takes it."""
    return _is_booleanlike(e) and _fits(e)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _boolean(e: Expression) -> Expression:
    return ("cast", e) if e[0] == "property" else e


def _is_booleanlike(e: Expression) -> bool:
    return e[0] not in ("text", "int", "float", "minus")


def _is_constant(e: Expression) -> bool:
    return e[0] in ("text", "int", "float", "bool", "null")


def _is_boolean_expression(e: Expression) -> bool:
    return e[0] not in ("text", "int", "float", "minus", "property")


def _has_order(e: Expression) -> bool:
    if _is_constant(e):
        return e[0] in ("int", "float")
    return not _is_boolean_expression(e)


def _fits(e: Expression) -> bool:
    kind = e[0]
    if kind in ("property", "text", "int", "float", "bool", "null", "in"):
        return True
    if kind in ("minus", "null?", "contains", "startswith", "endswith"):
        return _fits(e[1])
    if kind == "not":
        return _is_booleanlike(e[1]) and _fits(e[1])
    if kind == "between":
        if not all(map(_fits, e[1:4])) or not all(map(_has_order, e[1:4])):
            return False
        if e[4] or not (_is_constant(e[2]) and _is_constant(e[3])):
            return True
        return Decimal(e[2][1]) <= Decimal(e[3][1])
    left, right = e[1], e[2]
    if not _fits(left) or not _fits(right):
        return False
    if kind in ("and", "or"):
        return _is_booleanlike(left) and _is_booleanlike(right)
    if kind in ("=", "<>"):
        if left[0] == "null" or right[0] == "null":
            return False
        return not (left[0] == "bool" and _is_constant(right) and right[0] != "bool")
    return _has_order(left) and _has_order(right)


def _evaluate(e: Expression, properties: Properties) -> tuple[str, Any]:
    """(Java's class, value); ("null", None) for null."""
    kind = e[0]
    null: tuple[str, Any] = ("null", None)
    if kind == "property":
        return ("String", properties[e[1]]) if e[1] in properties else null
    if kind == "cast":
        return ("Boolean", False) if e[1][1] in properties else null
    if kind == "text":
        return "String", e[1]
    if kind == "int":
        return ("Integer" if int(e[1]) < 2**31 else "Long"), int(e[1])
    if kind == "float":
        return "Double", float(e[1])
    if kind == "bool":
        return "Boolean", e[1]
    if kind == "null":
        return null
    if kind == "minus":
        of, value = _evaluate(e[1], properties)
        return (of, -value) if of in ("Integer", "Long", "Double") else null
    if kind == "not":
        _, value = _evaluate(_boolean(e[1]), properties)
        return null if value is None else ("Boolean", not value)
    if kind in ("and", "or"):
        decisive = kind == "or"
        _, left = _evaluate(_boolean(e[1]), properties)
        if left is decisive:
            return "Boolean", decisive
        _, right = _evaluate(_boolean(e[2]), properties)
        if right is decisive:
            return "Boolean", decisive
        return null if left is None or right is None else ("Boolean", not decisive)
    if kind == "null?":
        _, value = _evaluate(e[1], properties)
        return "Boolean", (value is None) is not e[2]
    if kind == "<>":
        return _evaluate(("not", ("=", e[1], e[2])), properties)
    if kind == "between":
        if e[4]:
            return _evaluate(("or", ("<", e[1], e[2]), (">", e[1], e[3])), properties)
        return _evaluate(("and", (">=", e[1], e[2]), ("<=", e[1], e[3])), properties)
    if kind == "in":
        return ("Boolean", (properties[e[1]] in e[2]) is not e[3]) if e[1] in properties else null
    if kind in ("contains", "startswith", "endswith"):
        return _part(kind, e, properties)
    if kind == "=":
        return _equal(_evaluate(e[1], properties), _evaluate(e[2], properties))
    return _ordered(kind, e, properties)


def _part(kind: str, e: Expression, properties: Properties) -> tuple[str, Any]:
    if not e[2]:
        return "Boolean", False
    of, value = _evaluate(e[1], properties)
    if of != "String":
        return "Boolean", False
    found = {"contains": e[2] in value, "startswith": value.startswith(e[2]), "endswith": value.endswith(e[2])}[kind]
    return "Boolean", found is not e[3]


def _equal(left: tuple[str, Any], right: tuple[str, Any]) -> tuple[str, Any]:
    if left[0] == "null" and right[0] == "null":
        return "Boolean", True
    if left[0] == "null":
        return "null", None
    if right[0] == "null":
        return "Boolean", False
    if left[0] == right[0] == "String":
        return "Boolean", left[1] == right[1]
    return "Boolean", _compare(left, right) == 0


def _ordered(sign: str, e: Expression, properties: Properties) -> tuple[str, Any]:
    left = _evaluate(e[1], properties)
    if left[0] == "null":
        return left
    right = _evaluate(e[2], properties)
    if right[0] == "null":
        return right
    if left[0] == right[0] == "String":
        left, right = ("Double", _java_double(left[1])), ("Double", _java_double(right[1]))
    order = _compare(left, right)
    return "Boolean", {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[sign]


def _compare(left: tuple[str, Any], right: tuple[str, Any]) -> int:
    (lc, lv), (rc, rv) = left, right
    if lc == "Boolean" and rc == "String":
        raise Raises
    if lc == "String" and rc == "Boolean":
        lc, lv = "Boolean", lv.lower() == "true"
    elif lc == "String":
        lc, lv = rc, _read(rc, lv)
    elif rc == "String":
        rc, rv = lc, _read(lc, rv)
    if (lc == "Boolean") != (rc == "Boolean"):
        return -1
    if "Double" in (lc, rc):
        return _bits_order(float(lv)) - _bits_order(float(rv))
    return int((lv > rv) - (lv < rv))


def _bits_order(number: float) -> int:
    """The place of a double in Java's total order."""
    if math.isnan(number):
        return 2**64
    (bits,) = struct.unpack(">q", struct.pack(">d", number))
    return int(bits) if bits >= 0 else -(int(bits) & (2**63 - 1)) - 1


def _read(of: str, text: str) -> float:
    if of == "Double":
        return _java_double(text)
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits or set(digits) - _DIGITS:
        raise Raises
    number = int(Decimal(text))
    limit = 2**31 if of == "Integer" else 2**63
    if not -limit <= number < limit:
        raise Raises
    return number


def _java_double(text: str) -> float:
    trimmed = text.strip("".join(map(chr, range(33))))
    body = trimmed[1:] if trimmed[:1] in ("+", "-") else trimmed
    if body in ("NaN", "Infinity"):
        return float(trimmed)
    if body[-1:] in ("f", "F", "d", "D"):
        body = trimmed = trimmed[:-1]
        body = body.lstrip("+-")
    if not body or set(body) - (_DIGITS | set(".eE+-")) or not set(body) & _DIGITS:
        raise Raises  # hexadecimal is not drawn here
    try:
        return float(trimmed)
    except ValueError as error:
        raise Raises from error
