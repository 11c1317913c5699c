"""Prometheus's text format, for the servers beside brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

Labels = TypeVar("Labels", bound=tuple[object, ...])
Kind = tuple[str, str, str]
"""A metric: its name, its type, and what it counts."""


def numbers(kinds: Mapping[str, Kind], values: Mapping[str, int]) -> list[str]:
    """Return the lines of metrics that have one value each; a key of `values` is one of `kinds`."""
    lines: list[str] = []
    for key, value in values.items():
        name = kinds[key][0]
        lines += (*_head(kinds[key]), f"{name} {value}")
    return lines


def counted(kind: Kind, labels: Sequence[str], counts: Mapping[Labels, int]) -> list[str]:
    """Return the lines of a metric with a value for each of some labels."""
    lines = [*_head(kind)]
    for key, count in sorted(counts.items()):
        said = ",".join(f'{label}="{value}"' for label, value in zip(labels, key, strict=True))
        lines.append(f"{kind[0]}{{{said}}} {count}")
    return lines


def page(lines: Sequence[str]) -> bytes:
    """Return the body of an answer."""
    return ("\n".join(lines) + "\n").encode()


def _head(kind: Kind) -> tuple[str, str]:
    name, sort, text = kind
    return f"# HELP {name} {text}", f"# TYPE {name} {sort}"
