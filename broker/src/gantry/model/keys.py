"""A configuration key: its type, unit, bounds and description, and how a value given for it is read.

A configuration is a tree of frozen dataclasses.  Each field is declared by one of the functions below, which keep a
`Key` in the field's metadata:

    class PullConfig:
        count_max: int = number(1024, 1, 32_768, "messages", "Largest number of messages in one answer.")

What is declared here is the only source: checks, documentation and tests are made from it (`table`).  A value is taken
as YAML, an environment variable, a flag or a properties file give it; `read` returns it typed, or raises ValueError
with what was expected: type, bounds and unit.  Rules between several keys are not known here.
"""

from __future__ import annotations

import enum
import re
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, TypeVar

_N = TypeVar("_N", int, float)
_E = TypeVar("_E", bound=enum.Enum)

BYTES, SHARE = "bytes", "share"
TEXT_MAX = 4096
_METADATA = "key"
_FLOAT_MAX = 1e300  # beyond all bounds; a whole number much above it is no float
_SIZES = {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
# What undecodable bytes of the environment become, and what UTF-8 has no bytes for.
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Key:
    """What is declared about one key.

    `low` and `high` bound a number, the length of a text in characters, or the number of texts in a list.  `special`
    are numbers outside of the bounds that mean something else.  `among` are the only numbers that are allowed.
    `form` says in words what `pattern` asks of a text, or of each text in a list.
    """

    text: str
    unit: str = ""
    low: float = 0
    high: float = 0
    special: tuple[tuple[int, str], ...] = ()
    among: tuple[int, ...] = ()
    pattern: str = ""
    form: str = ""
    is_hot: bool = False


class DeclaredKey(NamedTuple):
    """One key of a tree: its declared type, its declaration, its default."""

    kind: object
    key: Key
    default: object

    @property
    def expected(self) -> str:
        """What a value has to be, with bounds and unit, as an error or a document says it."""
        return _expected(self.kind, self.key)


def number(
    default: _N, low: _N, high: _N, unit: str, text: str, special: Mapping[int, str] | None = None, is_hot: bool = False
) -> _N:
    """Declare a number from low to high, both allowed; `special` are further values by their meaning."""
    key = Key(text, unit, low, high, tuple((special or {}).items()), is_hot=is_hot)
    return field(default=default, metadata={_METADATA: key})


def one_of(default: int, among: Mapping[int, str], text: str, is_hot: bool = False) -> int:
    """Declare a number that is one of a few, each with its meaning."""
    key = Key(text, special=tuple(among.items()), among=tuple(among), is_hot=is_hot)
    return field(default=default, metadata={_METADATA: key})


def switch(default: bool, text: str, is_hot: bool = False) -> bool:
    """Declare a key that is true or false."""
    return field(default=default, metadata={_METADATA: Key(text, is_hot=is_hot)})


def choice(default: _E, text: str) -> _E:
    """Declare one member of an enum; its values are what users write, in any case."""
    return field(default=default, metadata={_METADATA: Key(text)})


def words(default: str, text: str, pattern: str = "", form: str = "", low: int = 0, high: int = TEXT_MAX) -> str:
    """Declare a text of low to high characters that matches the pattern as a whole, if there is one."""
    key = Key(text, "characters", low, high, pattern=pattern, form=form)
    return field(default=default, metadata={_METADATA: key})


def several(default: tuple[str, ...], low: int, high: int, pattern: str, form: str, text: str) -> tuple[str, ...]:
    """Declare a list of low to high texts that each match the pattern as a whole."""
    key = Key(text, "entries", low, high, pattern=pattern, form=form)
    return field(default=default, metadata={_METADATA: key})


def table(tree: type) -> Mapping[str, DeclaredKey]:
    """Every dotted key of a tree, in the order of declaration."""
    return _whole_table(tree)


@lru_cache(64)
def _whole_table(tree: type) -> Mapping[str, DeclaredKey]:
    return MappingProxyType(_table(tree, ""))


def _table(tree: type, prefix: str) -> dict[str, DeclaredKey]:
    hints = typing.get_type_hints(tree)
    result: dict[str, DeclaredKey] = {}
    for each in fields(tree):
        kind = hints[each.name]
        if is_dataclass(kind):
            assert isinstance(kind, type)
            result.update(_table(kind, f"{prefix}{each.name}."))
        else:
            key = each.metadata.get(_METADATA)
            assert isinstance(key, Key) and each.default is not MISSING, (
                f"{prefix}{each.name} is declared without a Key"
            )
            result[prefix + each.name] = DeclaredKey(kind, key, each.default)
    return result


def read(value: object, entry: DeclaredKey) -> object:
    """Return the value as the key's type; ValueError saying what was expected."""
    try:
        found = _typed(value, entry.kind, entry.key)
    except ValueError:  # Python writes no whole number of more than 4300 digits as a text
        found = None
    if found is None:
        encoding = ", in UTF-8" if isinstance(value, str) and _SURROGATE.search(value) else ""
        raise ValueError(f"expected {entry.expected}{encoding}")
    return found


def shown(value: float, unit: str) -> str:
    """A bound or a default as users write it: `64 MiB`, `0.5`, `20000`."""
    if unit == BYTES and isinstance(value, int):
        for name, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value and value % size == 0:
                return f"{value // size} {name}"
    return str(int(value)) if value == int(value) else f"{value:g}"


def as_written(entry: DeclaredKey) -> str:
    """The default of a key as users write it."""
    default = entry.default
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int | float):
        return shown(default, entry.key.unit)
    return ";".join(default) if isinstance(default, tuple) else str(default)


def _typed(value: object, kind: object, key: Key) -> object:
    if kind is bool:
        return _boolean(value)
    if kind is int:
        return _within(_integer(value, key.unit == BYTES), key)
    if kind is float:
        return _within(_float(value), key)
    if kind is str:
        return _text(value, key)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next((each for each in kind if str(value).strip().upper() == str(each.value).upper()), None)
    assert kind == tuple[str, ...], f"a configuration key of type {kind}"
    return _texts(value, key)


def _expected(kind: object, key: Key) -> str:
    if kind is bool:
        return "true or false"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "one of " + ", ".join(str(each.value) for each in kind)
    if key.among:
        return "one of " + ", ".join(f"{value} ({meaning})" for value, meaning in key.special)
    if kind is str:
        length = f"{shown(key.low, '')} to {shown(key.high, '')} characters" if key.low else ""
        return key.form or (f"text of {length}" if length else f"text of at most {shown(key.high, '')} characters")
    if kind not in (int, float):
        return f"{shown(key.low, '')} to {shown(key.high, '')} of: {key.form}"
    what = "whole number" if kind is int else "number"
    bounds = f"{shown(key.low, key.unit)} to {shown(key.high, key.unit)}"
    unit = f" of {key.unit}" if key.unit and key.unit != SHARE else ""
    special = "".join(f", or {value} ({meaning})" for value, meaning in key.special)
    return f"a {what}{unit} from {bounds}{special}"


def _within(found: _N | None, key: Key) -> _N | None:
    if found is None or any(found == value for value, _ in key.special):
        return found
    return found if not key.among and key.low <= found <= key.high else None


def _boolean(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    return text in _TRUE if text in _TRUE or text in _FALSE else None


def _integer(value: object, is_size: bool) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = value.strip().upper() if isinstance(value, str) else ""
    unit = _SIZES.get(text[-3:], 1) if is_size else 1
    digits = text[:-3].strip() if unit > 1 else text
    return int(digits) * unit if _WHOLE.fullmatch(digits) else None


def _float(value: object) -> float | None:
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value.strip()) else None
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < _FLOAT_MAX:  # nan is not less
        return None
    return float(value)


def _text(value: object, key: Key) -> str | None:
    # YAML reads yes, 1.10 and 2026-01-01 as something else than the text that stands there; such a value wants quotes.
    if not isinstance(value, str | int) or isinstance(value, bool):
        return None
    text = str(value)
    fits = key.low <= len(text) <= key.high and "\0" not in text and not _SURROGATE.search(text)
    return text if fits and (not key.pattern or re.fullmatch(key.pattern, text)) else None


def _texts(value: object, key: Key) -> tuple[str, ...] | None:
    if isinstance(value, str):
        value = [part for part in re.split("[;,]", value) if part.strip()]
    if not isinstance(value, list | tuple) or not key.low <= len(value) <= key.high:
        return None
    parts = [str(part).strip() if isinstance(part, str | int) and not isinstance(part, bool) else "" for part in value]
    fits = all(re.fullmatch(key.pattern, part) and not _SURROGATE.search(part) for part in parts)
    return tuple(parts) if fits else None
