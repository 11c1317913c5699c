"""Reading what other programs write as JSON: typed look-ups in a decoded object.

Java, Go and C++ do not agree on how to write a number or a truth: 4, "4", true, "true", 1 and "1" all occur where one
is meant.  These look-ups accept every spelling that has one meaning, take the default for a field that is missing or
null, and raise ValueError, naming the field, for anything else.  Unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

from gantry.leaves import fields

Document = Mapping[str, object]


def document(value: object, what: str) -> Document:
    """Return the value as a JSON object; ValueError naming `what` if it is something else."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is a JSON {type(value).__name__}, expected an object")
    return value


def integer(source: Document, name: str, default: int = 0) -> int:
    """Return a 64-bit integer field, also if it is written as a text; ValueError for any other value."""
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
    """Return a boolean field; numbers other than 0 are true, and the texts that `leaves.fields` reads as true."""
    value = source.get(name)
    if value is None:
        return default
    if isinstance(value, str):
        return fields.boolean(value)
    if isinstance(value, int):
        return value != 0
    raise ValueError(f"{name} is neither true nor false")


def text(source: Document, name: str, default: str = "") -> str:
    """Return a text field; a number is returned as its digits."""
    value = source.get(name)
    if value is None:
        return default
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"{name} is not a text")


def mapping(source: Document, name: str) -> Document:
    """Return an object inside the object; empty when it is missing."""
    value = source.get(name)
    return {} if value is None else document(value, name)


def array(source: Document, name: str) -> list[object]:
    """Return a list inside the object; empty when it is missing."""
    value = source.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{name} is a JSON {type(value).__name__}, expected an array")
    return value


def texts(source: Document, name: str) -> dict[str, str]:
    """Return an object inside the object whose values are all texts; empty when it is missing."""
    inner = mapping(source, name)
    return {key: text(inner, key) for key, value in inner.items() if value is not None}
