"""Route tables of name servers in tests: what goes over all topics in slices, here at once."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import TypeVar

from gantry.nameserver.sliced import SlicedWork
from gantry.nameserver.table import RouteTable
from gantry.nameserver.topiclist import topic_list

_T = TypeVar("_T")


def outcome_of(steps: Generator[None, None, _T]) -> _T:
    """Return what the steps return in the end."""
    return SlicedWork(steps).at_once()


def topics_of(table: RouteTable, cluster: str | None = None) -> list[str]:
    """Return the names in an answer with all topics, or with those of a cluster."""
    body = outcome_of(topic_list(table, cluster))
    assert isinstance(body, bytes), body
    names: list[str] = json.loads(body)["topicList"]
    return names
