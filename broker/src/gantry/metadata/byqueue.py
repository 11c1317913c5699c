"""Numbers by queue id, as the document of the offsets has them: `{"topic@group": {"0": 123}}`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from gantry.leaves import fields
from gantry.model import documents


def read(source: documents.Document, name: str) -> dict[str, dict[int, int]]:
    """Return the table of this name; ValueError when its keys are no queue ids, or its values no numbers."""
    table: dict[str, dict[int, int]] = {}
    for key, value in documents.mapping(source, name).items():
        table[key] = numbers(value, f"{name} of {key}")
    return table


def numbers(value: object, what: str) -> dict[int, int]:
    """Return the numbers of one key by queue id; ValueError, which names `what`, for anything else."""
    source = documents.document(value, what)
    return {_queue_id(queue): documents.integer(source, queue) for queue in source}


def topic_of(key: str) -> str:
    """Return the topic of a `topic@group`."""
    return key.partition("@")[0]


def is_shared(key: str) -> bool:
    """Return whether the reader is a group, not a single member of a broadcasting group."""
    return key.count("@") == 1


def _queue_id(name: str) -> int:
    queue_id = fields.integer(name)
    if queue_id is None:
        raise ValueError(f"{name[:40]!r} is no queue id")
    return queue_id


class ListedTable(Protocol):
    """A table of a document, as far as it is listed."""

    def keys(self) -> Iterable[str]:
        """Return every key."""
        ...

    def value(self, key: str) -> object:
        """Return an entry as it is saved; None when there is none."""
        ...


def entries(table: ListedTable) -> Iterator[tuple[str, object]]:
    """Yield each entry as it is at that moment; one that was removed meanwhile is left out."""
    for key in list(table.keys()):
        if (value := table.value(key)) is not None:
            yield key, value
