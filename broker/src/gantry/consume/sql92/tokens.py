"""The words of an SQL92 expression.

    names      an ASCII letter, `_` or `$`, then these and digits; case counts, but not in the reserved words
    texts      'in single quotes', a quote inside doubled; double quotes mean nothing
    integers   `0` or digits that do not begin with one, with an optional `L`; they fit into 64 bits
    floats     `5.5` `5.` `.5` `5E10`; greater than 0 and finite, so `0.0` is none
    comments   `-- to the end of the line` and `/* ... */`, both as good as a blank

Source: RocketMQ's `SelectorParser.jj` and `ConstantExpression`.  The longest word wins, as in JavaCC: `5E` is the
integer 5 and the name E.  RocketMQ's last comment needs its line end, but there what follows an expression is not
looked at.

An expression has at most EXPRESSION_CHARS_MAX characters and WORDS_MAX words: it is compiled on the loop, and that many
take some 5 ms.
"""

from __future__ import annotations

import re
from math import inf
from typing import NamedTuple

from gantry.model.subscription import EXPRESSION_CHARS_MAX

WORDS_MAX = 4096

NAME, TEXT, INTEGER, FLOAT, SIGN, END = "a name", "a text", "an integer", "a number", "a sign", "the end"
RESERVED = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"}
)

_I64_MAX = 2**63 - 1
_BLANK = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*(?:[\n\r]|\Z)|/\*.*?\*/)+", re.DOTALL)
_WORD = re.compile(r"(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)", re.ASCII)
_FLOAT = re.compile(r"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+")
_INTEGER = re.compile(r"(?:0|[1-9][0-9]*)")
_TEXT = re.compile(r"'((?:''|[^'])*)'")
_SIGN = re.compile(r"<>|<=|>=|[=<>()+,-]")

_HINTS = (
    ("!=", "write <>"),
    ("&&", "write AND"),
    ("||", "write OR"),
    ('"', "texts stand in single quotes"),
    ("'", "the quote is not closed"),
    ("/*", "the comment is not closed"),
)


class SqlError(ValueError):
    """Why a text is no expression; `at` is the position (from 0) of what cannot be."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(f"at position {at}: {what}")
        self.at = at


class Token(NamedTuple):
    """One word.  `kind` is one of those above or, for a reserved word, the word in capitals; `value` is what a literal
    means: str, int or float; `text` is how it was written."""

    kind: str
    text: str
    at: int
    value: str | int | float = ""


def tokens(expression: str) -> list[Token]:
    """All words and the END; SqlError for what is none, or too long an expression."""
    if len(expression) > EXPRESSION_CHARS_MAX:
        what = f"the expression has {len(expression)} characters, the limit is {EXPRESSION_CHARS_MAX}"
        raise SqlError(EXPRESSION_CHARS_MAX, what)
    try:
        expression.encode()
    except UnicodeEncodeError as error:
        raise SqlError(error.start, "half a character (a lone surrogate)") from error
    found: list[Token] = []
    at = 0
    while True:
        blank = _BLANK.match(expression, at)
        at = blank.end() if blank else at
        if at == len(expression):
            found.append(Token(END, "", at))
            return found
        if len(found) == WORDS_MAX:
            raise SqlError(at, f"the expression has more than {WORDS_MAX} words")
        token, at = _next(expression, at)
        found.append(token)


def _next(expression: str, at: int) -> tuple[Token, int]:
    """The word that begins here, and where it ends."""
    if match := _WORD.match(expression, at):
        word = match[0]
        if word.upper() in RESERVED:
            return Token(word.upper(), word, at), match.end()
        return Token(NAME, word, at, word), match.end()
    if match := _FLOAT.match(expression, at):
        return Token(FLOAT, match[0], at, _double(match[0], at)), match.end()
    if match := _INTEGER.match(expression, at):
        end = match.end()
        if end < len(expression) and expression[end] in "lL":
            end += 1
        return Token(INTEGER, expression[at:end], at, _long(match[0], at)), end
    if match := _TEXT.match(expression, at):
        return Token(TEXT, match[0], at, match[1].replace("''", "'")), match.end()
    if match := _SIGN.match(expression, at):
        return Token(match[0], match[0], at), match.end()
    hint = next((f"; {hint}" for sign, hint in _HINTS if expression.startswith(sign, at)), "")
    raise SqlError(at, f"{expression[at]!r} means nothing here{hint}")


def _long(digits: str, at: int) -> int:
    if len(digits) > 19 or int(digits) > _I64_MAX:
        raise SqlError(at, f"{digits[:24]} does not fit into 64 bits")
    return int(digits)


def _double(text: str, at: int) -> float:
    value = float(text)
    if value == inf or value == 0.0:
        raise SqlError(at, f"{text[:24]} is 0 or more than a double holds; write 0 without a point")
    return value
