"""From the text of an SQL92 expression to its tree.

    some    := all (OR all)*
    all     := same (AND same)*
    same    := compared ( "=" compared | "<>" compared | IS [NOT] NULL )*
    compared:= signed ( (">" | ">=" | "<" | "<=") signed | [NOT] BETWEEN signed AND signed
             | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text | [NOT] IN "(" text ("," text)* ")" )*
    signed  := "+" signed | "-" signed | NOT signed | value
    value   := text | integer | number | TRUE | FALSE | NULL | name | "(" some ")"

NOT binds more tightly than `=`: `NOT a = 1` asks whether (NOT a) equals 1.  What may stand beside what is RocketMQ's
(`ComparisonExpression`): order is for numbers and properties, NULL is only asked for by IS, IN wants a property, and
what AND, OR, NOT and the whole take has to be a boolean or a bare property.

Different on purpose: RocketMQ stops reading at the end of the first expression, so that `a > 5 b < 3` means `a > 5`.
Here what follows is an error.

Trees are bounded in nodes and depth, because every evaluation costs time on the loop.
"""

from __future__ import annotations

from gantry.consume.sql92.tokens import END, FLOAT, INTEGER, NAME, TEXT, SqlError, Token, tokens
from gantry.consume.sql92.tree import (
    NUMBERS,
    All,
    Equal,
    IsNull,
    Literal,
    Negate,
    Node,
    Not,
    Order,
    Property,
    Some,
    TextMatch,
    ValueType,
    Within,
    depth_of,
    is_boolean,
    kind_of,
)

NODES_MAX = 1024
DEPTH_MAX = 64

_TOO_DEEP = f"the expression nests more than {DEPTH_MAX} deep"
_I32_MAX = 2**31 - 1
_ORDERS = frozenset({"<", "<=", ">", ">="})
_PARTS = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
_HINTS = {"LIKE": "; there is no LIKE, use CONTAINS, STARTSWITH or ENDSWITH", "=": "; equality is a single ="}


def parse(expression: str) -> Node:
    """Parse an expression into its tree; SqlError says where and why it is not valid."""
    return _Parser(tokens(expression)).whole()


class _Parser:
    """One pass over the words."""

    def __init__(self, words: list[Token]) -> None:
        self._words = words
        self._at = 0
        self._nodes = 0
        self._depth = 0

    def whole(self) -> Node:
        node = self._as_boolean(self._some(), self._word)
        if self._word.kind != END:
            raise self._unexpected("AND, OR or the end")
        if depth_of(node) > DEPTH_MAX:  # a = b = c = ... goes deep without brackets
            raise SqlError(0, _TOO_DEEP)
        return node

    # The rules of the grammar

    def _some(self) -> Node:
        begun = self._word
        operands = [self._all()]
        while self._take("OR"):
            operands[-1] = self._as_boolean(operands[-1], begun)
            begun = self._word
            operands.append(self._all())
        if len(operands) > 1:
            operands[-1] = self._as_boolean(operands[-1], begun)
        return operands[0] if len(operands) == 1 else self._made(Some(tuple(operands)))

    def _all(self) -> Node:
        begun = self._word
        operands = [self._same()]
        while self._take("AND"):
            operands[-1] = self._as_boolean(operands[-1], begun)
            begun = self._word
            operands.append(self._same())
        if len(operands) == 1:
            return operands[0]
        operands[-1] = self._as_boolean(operands[-1], begun)
        return self._made(All(tuple(operands)))

    def _same(self) -> Node:
        node = self._compared()
        while True:
            word = self._word
            if self._take("=") or self._take("<>"):
                equal = self._equal(node, self._compared(), word)
                node = equal if word.kind == "=" else self._made(Not(equal))
            elif self._take("IS"):
                negated = self._take("NOT")
                self._expect("NULL")
                null = self._made(IsNull(node))
                node = self._made(Not(null)) if negated else null
            else:
                return node

    def _compared(self) -> Node:
        node = self._signed()
        while True:
            word = self._word
            if word.kind in _ORDERS:
                self._at += 1
                node = self._ordered(word.kind, node, self._signed(), word)
            elif word.kind in _PARTS or word.kind in ("BETWEEN", "IN"):
                node = self._related(node, False)
            elif word.kind == "NOT" and self._words[self._at + 1].kind in _PARTS | {"BETWEEN", "IN"}:
                self._at += 1
                node = self._related(node, True)
            else:
                return node

    def _related(self, left: Node, negated: bool) -> Node:
        word = self._advance()
        if word.kind == "BETWEEN":
            low = self._signed()
            self._expect("AND")
            return self._between(left, low, self._signed(), negated, word)
        if word.kind == "IN":
            if not isinstance(left, Property):
                raise SqlError(word.at, "IN wants a property on its left")
            return self._made(Within(left.name, frozenset(self._texts()), negated))
        return self._made(TextMatch(word.kind, left, str(self._expect(TEXT).value), negated))

    def _texts(self) -> list[str]:
        self._expect("(")
        texts = [str(self._expect(TEXT).value)]
        while self._take(","):
            texts.append(str(self._expect(TEXT).value))
        self._expect(")")
        return texts

    def _signed(self) -> Node:
        begun = self._word
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise SqlError(begun.at, _TOO_DEEP)
        if self._take("+"):
            node = self._signed()
        elif self._take("-"):
            node = self._made(Negate(self._signed()))
        elif self._take("NOT"):
            operand = self._word
            node = self._made(Not(self._as_boolean(self._signed(), operand)))
        elif self._take("("):
            node = self._some()
            self._expect(")")
        else:
            node = self._value(begun)
        self._depth -= 1
        return node

    def _value(self, word: Token) -> Node:
        self._at += 1
        if word.kind == NAME:
            return self._made(Property(word.text))
        if word.kind == TEXT:
            return self._made(Literal(ValueType.TEXT, word.value))
        if word.kind == INTEGER:
            kind = ValueType.INTEGER if int(word.value) <= _I32_MAX else ValueType.LONG
            return self._made(Literal(kind, word.value))
        if word.kind == FLOAT:
            return self._made(Literal(ValueType.DOUBLE, word.value))
        if word.kind in ("TRUE", "FALSE"):
            return self._made(Literal(ValueType.BOOLEAN, word.kind == "TRUE"))
        if word.kind == "NULL":
            return self._made(Literal(ValueType.NULL, None))
        self._at -= 1
        raise self._unexpected("a property, a text, a number or a bracket")

    # Which kinds of operands are allowed

    def _equal(self, left: Node, right: Node, word: Token) -> Node:
        for side in (left, right):
            if isinstance(side, Literal) and side.kind is ValueType.NULL:
                raise SqlError(word.at, f"nothing is {word.kind} NULL; write IS NULL or IS NOT NULL")
        are_literal = isinstance(left, Literal) and isinstance(right, Literal)
        if are_literal and kind_of(left) is ValueType.BOOLEAN and kind_of(right) is not ValueType.BOOLEAN:
            raise SqlError(word.at, f"a boolean cannot be compared with {kind_of(right).value}")
        return self._made(Equal(left, right))

    def _ordered(self, sign: str, left: Node, right: Node, word: Token) -> Node:
        for side in (left, right):
            kind = kind_of(side)
            if is_boolean(side) or (isinstance(side, Literal) and kind not in NUMBERS):
                raise SqlError(word.at, f"{word.text.upper()} compares numbers and properties, not {kind.value}")
        return self._made(Order(sign, left, right))

    def _between(self, value: Node, low: Node, high: Node, negated: bool, word: Token) -> Node:
        if negated:
            return self._made(Some((self._ordered("<", value, low, word), self._ordered(">", value, high, word))))
        bounds = self._ordered(">=", value, low, word), self._ordered("<=", value, high, word)
        if isinstance(low, Literal) and isinstance(high, Literal) and _number(low) > _number(high):
            raise SqlError(word.at, f"nothing is between {low.value} and {high.value}; the lesser number comes first")
        return self._made(All(bounds))

    def _as_boolean(self, node: Node, begun: Token) -> Node:
        if isinstance(node, Property) or is_boolean(node):
            return node
        raise SqlError(begun.at, f"expected something true or false, found {kind_of(node).value}")

    # Words and bounds

    @property
    def _word(self) -> Token:
        return self._words[self._at]

    def _advance(self) -> Token:
        self._at += 1
        return self._words[self._at - 1]

    def _take(self, kind: str) -> bool:
        if self._word.kind != kind:
            return False
        self._at += 1
        return True

    def _expect(self, kind: str) -> Token:
        if self._word.kind != kind:
            raise self._unexpected(kind)
        return self._advance()

    def _unexpected(self, wanted: str) -> SqlError:
        word = self._word
        found = word.kind if word.kind == END else word.text[:40]
        return SqlError(word.at, f"expected {wanted}, found {found}{_HINTS.get(word.text.upper(), '')}")

    def _made(self, node: Node) -> Node:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise SqlError(self._word.at, f"the expression has more than {NODES_MAX} parts")
        return node


def _number(literal: Literal) -> float:
    assert not isinstance(literal.value, str | None)
    return literal.value
