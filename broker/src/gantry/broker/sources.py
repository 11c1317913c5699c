"""From text to a tree of frozen dataclasses: YAML, environment, flags, strongest last.

A `Source` is a flat table of dotted keys, with the name of the place where each stood, so that an error can say
where to look.  `build` knows the tree by its type annotations alone: a key that it does not find, or a value
that does not fit, is a ConfigError naming key, place, and the nearest known key.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import re
import typing
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from gantry.errors import ConfigError

_T = TypeVar("_T")

_PREFIX = "GANTRY_"
# Variables of other parts of the house: the leaves, and the folder of the interoperability tests.
_NOT_OURS = frozenset({"GANTRY_PURE", "GANTRY_COMPILED", "GANTRY_CACHE"})
# Kubernetes puts such variables into every pod for a service whose name begins with "gantry-".
_KUBERNETES = re.compile(r"_(SERVICE_(HOST|PORT\w*)|PORT(_\d+_(TCP|UDP)\w*)?)$")
_SIZES = {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


class Source(NamedTuple):
    """Values by dotted key, and a text per key that says where it stood."""

    values: Mapping[str, object]
    places: Mapping[str, str]


def from_flags(flags: Mapping[str, object], place: str) -> Source:
    """Values that a program gives by dotted key; None means not given."""
    given = {key: value for key, value in flags.items() if value is not None}
    return Source(given, {key: f"{place} {key}" for key in given})


def from_yaml(path: str) -> Source:
    """The values of a YAML file, its sections flattened."""
    import yaml

    text = read_text(path)
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: expected keys and values, found a {type(document).__name__}")
    flat: dict[str, object] = {}
    _flatten("", document, flat)
    return Source(flat, {key: f"{path}: {key}" for key in flat})


def from_environment(tree: type, environment: Mapping[str, str]) -> Source:
    """The variables GANTRY_<SECTION>_<KEY>."""
    by_variable = {_PREFIX + key.replace(".", "_").upper(): key for key in leaves(tree)}
    values: dict[str, object] = {}
    places: dict[str, str] = {}
    for variable, value in environment.items():
        if not variable.startswith(_PREFIX) or variable in _NOT_OURS:
            continue
        key = by_variable.get(variable)
        if key is None:
            if _KUBERNETES.search(variable):
                continue
            raise ConfigError(f"environment variable {variable} is not known{_nearest(variable, by_variable)}")
        values[key] = value
        places[key] = f"environment variable {variable}"
    return Source(values, places)


def build(tree: type[_T], sources: Iterable[Source]) -> _T:
    """The tree of all sources together; a later source wins."""
    values: dict[str, object] = {}
    places: dict[str, str] = {}
    for source in sources:
        values.update(source.values)
        places.update(source.places)
    types = leaves(tree)
    converted = {}
    for key, value in values.items():
        if key not in types:
            raise ConfigError(f"{places[key]} is not known{_nearest(key, types)}")
        converted[key] = _convert(value, types[key], places[key])
    return typing.cast(_T, _made(tree, "", converted))


def replaced(config: _T, changes: Mapping[str, object], place: str) -> _T:
    """The same tree with some keys changed; the errors of `build`."""
    given = from_flags({**flat(config), **changes}, place)
    return build(type(config), [given])


def flat(config: object) -> dict[str, object]:
    """Every value of a tree by dotted key."""
    result: dict[str, object] = {}
    for name in _fields(type(config)):
        value = getattr(config, name)
        if dataclasses.is_dataclass(value):
            result.update({f"{name}.{key}": inner for key, inner in flat(value).items()})
        else:
            result[name] = value
    return result


def leaves(tree: type, prefix: str = "") -> dict[str, object]:
    """The type of every dotted key of a tree."""
    result: dict[str, object] = {}
    for name, kind in _fields(tree).items():
        if dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            result.update(leaves(kind, f"{prefix}{name}."))
        else:
            result[prefix + name] = kind
    return result


def read_text(path: str) -> str:
    """A configuration file's text; ConfigError when it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _fields(tree: type) -> dict[str, object]:
    hints = typing.get_type_hints(tree)
    return {field.name: hints[field.name] for field in dataclasses.fields(tree)}


def _made(tree: type, prefix: str, values: Mapping[str, object]) -> object:
    given: dict[str, object] = {}
    for name, kind in _fields(tree).items():
        key = prefix + name
        if dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            given[name] = _made(kind, f"{key}.", values)
        elif key in values:
            given[name] = values[key]
    return tree(**given)


def _flatten(prefix: str, section: Mapping[object, object], into: dict[str, object]) -> None:
    for key, value in section.items():
        if isinstance(value, dict):
            _flatten(f"{prefix}{key}.", value, into)
        else:
            into[f"{prefix}{key}"] = value


def _convert(value: object, kind: object, place: str) -> object:
    if kind is bool:
        return _boolean(value, place)
    if kind is int:
        return _integer(value, place)
    if kind is float:
        return _float(value, place)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _choice(value, kind, place)
    if kind is str:
        if isinstance(value, dict | list | tuple) or value is None:
            raise _ill_typed(value, "text", place)
        return str(value)
    assert kind == tuple[str, ...], f"a configuration key of type {kind}"
    if isinstance(value, str):
        value = [part for part in re.split("[;,]", value) if part.strip()]
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
        raise _ill_typed(value, "a list of texts", place)
    return tuple(part.strip() for part in value)


def _boolean(value: object, place: str) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in _TRUE and text not in _FALSE:
        raise _ill_typed(value, "true or false", place)
    return text in _TRUE


def _integer(value: object, place: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value).strip().upper() if isinstance(value, str) else ""
    unit = _SIZES.get(text[-3:], 1)
    digits = text[:-3].strip() if unit > 1 else text
    if not re.fullmatch("[+-]?[0-9]{1,18}", digits):
        raise _ill_typed(value, "a whole number (with KiB, MiB or GiB for bytes)", place)
    return int(digits) * unit


def _float(value: object, place: str) -> float:
    try:
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            number = float(value)
            if number == number and abs(number) != float("inf"):
                return number
    except ValueError:
        pass
    raise _ill_typed(value, "a number", place)


def _choice(value: object, kind: type[enum.Enum], place: str) -> enum.Enum:
    for member in kind:
        if str(value).strip().upper() == str(member.value).upper():
            return member
    raise _ill_typed(value, "one of " + ", ".join(str(member.value) for member in kind), place)


def _ill_typed(value: object, expected: str, place: str) -> ConfigError:
    return ConfigError(f"{place}: expected {expected}, found {str(value)[:80]!r}")


def _nearest(key: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    if not close:  # the right word in the wrong section
        close = [name for name in names if name.rpartition(".")[2] == key.rpartition(".")[2]][:1]
    return (
        f"; the nearest known key is {close[0]}" if close else f"; known keys are {', '.join(sorted(names)[:8])}, ..."
    )
