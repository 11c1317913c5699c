"""Reads YAML, environment and flags into a tree of frozen dataclasses; later sources are stronger.

A `ConfigLayer` is a flat table of dotted keys, with the place of each, so that an error can name it: `broker.yaml:3`,
`environment variable GANTRY_STORE_ROOT`, `--data`.  `build` uses only the declarations of the tree
(`gantry.model.keys`).  All unknown keys and invalid values become one ConfigError, which names place, key, value and
what was expected, or the nearest known key.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from gantry.errors import ConfigError
from gantry.model.keys import read, table

if TYPE_CHECKING:
    import yaml

_T = TypeVar("_T")

_PREFIX = "GANTRY_"
# Variables of other parts of the project: the compiled modules, and the folder of the interoperability tests.
_NOT_OURS = frozenset({"GANTRY_PURE", "GANTRY_COMPILED", "GANTRY_CACHE"})
# Kubernetes sets such variables in every pod for a service whose name begins with "gantry-".
_KUBERNETES = re.compile(r"_(SERVICE_(HOST|PORT\w*)|PORT(_\d+_(TCP|UDP)\w*)?)$")
# More than the depth of any tree of keys, and less than the limit of recursion.
_DEPTH_MAX = 8
# Python refuses to print integers of more than 4300 digits.
_INTEGER_BITS_SHOWN = 256


class ConfigLayer(NamedTuple):
    """Values by dotted key, and the place of each as text."""

    values: Mapping[str, object]
    places: Mapping[str, str]


def from_flags(flags: Mapping[str, object], place: str, spoken: Mapping[str, str] | None = None) -> ConfigLayer:
    """Return values that a program passes by dotted key; None means not given. spoken: what the user typed for a
    key.
    """
    given = {key: value for key, value in flags.items() if value is not None}
    return ConfigLayer(given, {key: (spoken or {}).get(key, place) for key in given})


def from_yaml(path: str) -> ConfigLayer:
    """Return the values of a YAML file with its sections flattened; a place is `path:line`. ConfigError for invalid
    YAML.
    """
    import yaml

    text = read_text(path)
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return ConfigLayer({}, {})
        if not isinstance(root, yaml.MappingNode):
            raise ConfigError(f"{path}: expected keys and values, found {root.tag.rpartition(':')[2]}")
        values: dict[str, object] = {}
        places: dict[str, str] = {}
        for key, line, value in _flattened(path, "", root, loader):
            if key in places:
                raise ConfigError(f"{path}:{line}: {key} was set before, in {places[key]}; keep one of them")
            values[key], places[key] = value, f"{path}:{line}"
        return ConfigLayer(values, places)
    except RecursionError as error:
        raise ConfigError(f"{path}: expected keys in sections, not deeper") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error


def from_environment(tree: type, environment: Mapping[str, str]) -> ConfigLayer:
    """Return the values of the variables GANTRY_<SECTION>_<KEY>; ConfigError for an unknown one."""
    by_variable = {_PREFIX + key.replace(".", "_").upper(): key for key in table(tree)}
    values: dict[str, object] = {}
    places: dict[str, str] = {}
    for variable, value in environment.items():
        if not variable.startswith(_PREFIX) or variable in _NOT_OURS:
            continue
        key = by_variable.get(variable)
        if key is None:
            if _KUBERNETES.search(variable):
                continue
            raise ConfigError(f"environment variable {variable} is not known{nearest(variable, by_variable)}")
        values[key] = value
        places[key] = f"environment variable {variable}"
    return ConfigLayer(values, places)


def places_of(sources: Iterable[ConfigLayer]) -> dict[str, str]:
    """Return the place of each key's value; a later source wins."""
    return {key: place for source in sources for key, place in source.places.items()}


def build(tree: type[_T], sources: Sequence[ConfigLayer], hints: Mapping[str, str] | None = None) -> _T:
    """Return the tree of all sources together; a later source wins.

    ConfigError names every fault; `hints` are used instead of the nearest known key.
    """
    values = {key: value for source in sources for key, value in source.values.items()}
    places = places_of(sources)
    known = table(tree)
    converted: dict[str, object] = {}
    faults = []
    for key, value in values.items():
        if key in known:
            try:
                converted[key] = read(value, known[key])
            except ValueError as error:
                faults.append(f"{places[key]}: {key} {quoted(value)}: {error}")
        elif not any(name.startswith(f"{key}.") for name in known):
            hint = (hints or {}).get(key)
            faults.append(f"{places[key]}: {key} is not known{f'; {hint}' if hint else nearest(key, known)}")
        elif value is not None:  # None: a section without keys
            faults.append(f"{places[key]}: {key} {quoted(value)}: expected keys below it, each on a line of its own")
    if faults:
        raise ConfigError("; ".join(faults))
    return typing.cast(_T, _made(tree, "", converted))


def replaced(config: _T, changes: Mapping[str, object], place: str) -> _T:
    """Return the tree with some keys changed; ConfigError as in `build`."""
    given = from_flags({**flat(config), **changes}, place)
    return build(type(config), [given])


def flat(config: object) -> dict[str, object]:
    """Return every value of a tree by dotted key."""
    result: dict[str, object] = {}
    assert dataclasses.is_dataclass(config)
    for each in dataclasses.fields(config):
        value = getattr(config, each.name)
        if dataclasses.is_dataclass(value):
            result.update({f"{each.name}.{key}": inner for key, inner in flat(value).items()})
        else:
            result[each.name] = value
    return result


def read_text(path: str) -> str:
    """Return the text of a configuration file; ConfigError when it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _made(tree: type, prefix: str, values: Mapping[str, object]) -> object:
    given: dict[str, object] = {}
    for each in dataclasses.fields(tree):
        key, section = prefix + each.name, typing.cast(object, each.default_factory)
        if isinstance(section, type):
            given[each.name] = _made(section, f"{key}.", values)
        elif key in values:
            given[each.name] = values[key]
    return tree(**given)


def _flattened(
    path: str, prefix: str, section: yaml.MappingNode, loader: yaml.SafeLoader
) -> Iterator[tuple[str, int, object]]:
    """Yield key, line and value of every key in a section of the file."""
    import yaml

    loader.flatten_mapping(section)  # of `<<`
    for name, node in section.value:
        line = name.start_mark.line + 1
        if not isinstance(name, yaml.ScalarNode):
            raise ConfigError(f"{path}:{line}: expected the name of a key, found a list or a mapping")
        key = f"{prefix}{name.value}"
        if key.count(".") > _DEPTH_MAX:
            raise ConfigError(f"{path}:{line}: {key}: expected keys in sections, not deeper")
        if isinstance(node, yaml.MappingNode):
            loader.flatten_mapping(node)  # `<<` of an empty mapping leaves nothing
        if not isinstance(node, yaml.MappingNode):
            yield key, line, _constructed(f"{path}:{line}: {key}", node, loader)
        elif node.value:
            yield from _flattened(path, f"{key}.", node, loader)
        else:
            yield key, line, None  # a section without keys, which may still have an unknown name


def _constructed(place: str, node: yaml.Node, loader: yaml.SafeLoader) -> object:
    """Return the value of a node; ConfigError naming the place when PyYAML lets an error of Python through."""
    try:
        return loader.construct_object(node, deep=True)
    except (ValueError, OverflowError, LookupError, AttributeError) as error:  # 5000 digits, month 13, `!!bool x`
        found = f" {node.value[:80]!r}" if isinstance(node.value, str) else ""
        kind = node.tag.rpartition(":")[2]
        expected = f"cannot be read as {kind} or is too large; put quotes around a text"
        raise ConfigError(f"{place}{found}: {expected}") from error


def quoted(value: object) -> str:
    """Return a value as text for an error, in 80 characters at most."""
    if isinstance(value, int) and value.bit_length() > _INTEGER_BITS_SHOWN:
        return f"a whole number of {value.bit_length()} bits"
    try:
        return "without a value" if value is None else repr(value if isinstance(value, float) else str(value)[:80])
    except ValueError:
        return "with a whole number that is too long to be shown"  # in a list


def nearest(key: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown key: the nearest known one, or some of them."""
    names = list(known)
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    if not close:  # the right word in the wrong section
        close = [name for name in names if name.rpartition(".")[2] == key.rpartition(".")[2]][:1]
    return (
        f"; the nearest known key is {close[0]}" if close else f"; known keys are {', '.join(sorted(names)[:8])}, ..."
    )
