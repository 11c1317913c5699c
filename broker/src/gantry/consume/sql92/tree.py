"""The tree of an SQL92 expression.

The kind of every node is known before any message comes, because properties are always texts: only the literals
are numbers.  `BOOLEAN` is true, false or unknown; a bare property may stand where a boolean is wanted (it is never
true, as a text is no boolean).  `is_literal` matters to the rules about what may be compared, which look at how
something was written: `-5` is not a literal, and neither is anything made of literals.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ValueType(enum.Enum):
    """The kind of a node's value; the texts are used in error messages."""

    PROPERTY = "a property"
    TEXT = "a text"
    INTEGER = "an integer"  # 32 bits: a property beside it has to fit into as many
    LONG = "a long integer"
    DOUBLE = "a number"
    BOOLEAN = "a boolean"
    NULL = "NULL"  # the literal, and what has no value whatever comes


NUMBERS = frozenset({ValueType.INTEGER, ValueType.LONG, ValueType.DOUBLE})


@dataclass(frozen=True, slots=True)
class Property:
    """The value of a property, or nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; `kind` says what the value is, None is NULL."""

    kind: ValueType
    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Negate:
    """Unary minus of a number; NULL of anything else."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Not:
    """NOT of a boolean; unknown stays unknown."""

    operand: Node


@dataclass(frozen=True, slots=True)
class All:
    """AND, from left to right until one is false."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """OR, from left to right until one is true."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Equal:
    """`=`; `<>` is Not of it."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class IsNull:
    """IS NULL; IS NOT NULL is Not of it."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Order:
    """`<` `<=` `>` `>=` as `sign` says."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Within:
    """`name [NOT] IN (texts)`."""

    name: str
    texts: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class TextMatch:
    """[NOT] CONTAINS, STARTSWITH, ENDSWITH as `how` says."""

    how: str
    operand: Node
    text: str
    negated: bool


Node = Property | Literal | Negate | Not | All | Some | Equal | IsNull | Order | Within | TextMatch


def kind_of(node: Node) -> ValueType:
    """Return the kind of the node's value, which is known before any message comes."""
    if isinstance(node, Property):
        return ValueType.PROPERTY
    if isinstance(node, Literal):
        return node.kind
    if isinstance(node, Negate):
        inner = kind_of(node.operand)
        return inner if inner in NUMBERS else ValueType.NULL
    return ValueType.BOOLEAN


def is_boolean(node: Node) -> bool:
    """Return whether the node's value is a boolean; a bare property, also allowed as one, does not count."""
    if isinstance(node, Literal):
        return node.kind in (ValueType.BOOLEAN, ValueType.NULL)
    return not isinstance(node, Property | Negate)


def children(node: Node) -> tuple[Node, ...]:
    """Return the direct operands of a node."""
    if isinstance(node, All | Some):
        return node.operands
    if isinstance(node, Equal | Order):
        return node.left, node.right
    if isinstance(node, Negate | Not | IsNull | TextMatch):
        return (node.operand,)
    return ()


def depth_of(node: Node) -> int:
    """Return the depth of a tree; without recursion, because the limit on depth is what bounds recursion."""
    depth = 0
    level: list[Node] = [node]
    while level:
        depth += 1
        level = [child for parent in level for child in children(parent)]
    return depth
