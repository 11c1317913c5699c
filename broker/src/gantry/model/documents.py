"""Reading what other programs write as JSON: typed look-ups in a decoded object.

Java, Go and C++ do not agree on how to write a number or a truth: 4, "4", true, "true", 1 and "1" all occur where one
is meant.  These look-ups accept every spelling that has one meaning, take the default for a field that is missing or
null, and raise ValueError, naming the field, for anything else.  Unknown fields are nobody's business.
"""

from __future__ import annotations

from collections.abc import Mapping

from gantry.leaves import fields

Document = Mapping[str, object]


def document(value: object, what: str) -> Document:
    """The value as an object; ValueError naming `what` it should have been."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is a JSON {type(value).__name__}, expected an object")
    return value


def integer(source: Document, name: str, default: int = 0) -> int:
    """A 64-bit integer field."""
    value = source.get(name)
    if value is None:
        return default
    if isinstance(value, str):
        number = fields.integer(value)
        if number is not None:
            return number
    elif isinstance(value, int) and not isinstance(value, bool) and fields.I64_MIN <= value <= fields.I64_MAX:
        return value
    raise ValueError(f"{name} is not a 64-bit integer")


def boolean(source: Document, name: str, default: bool = False) -> bool:
    """A truth; numbers other than 0 are true, as are the texts that `leaves.fields` takes for true."""
    value = source.get(name)
    if value is None:
        return default
    if isinstance(value, str):
        return fields.boolean(value)
    if isinstance(value, int):
        return value != 0
    raise ValueError(f"{name} is neither true nor false")


def text(source: Document, name: str, default: str = "") -> str:
    """A text; a number stands for its digits."""
    value = source.get(name)
    if value is None:
        return default
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"{name} is not a text")


def mapping(source: Document, name: str) -> Document:
    """An object inside the object; empty when it is missing."""
    value = source.get(name)
    return {} if value is None else document(value, name)


def array(source: Document, name: str) -> list[object]:
    """A list inside the object; empty when it is missing."""
    value = source.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{name} is a JSON {type(value).__name__}, expected an array")
    return value


def texts(source: Document, name: str) -> dict[str, str]:
    """An object whose values are texts."""
    inner = mapping(source, name)
    return {key: text(inner, key) for key, value in inner.items() if value is not None}
