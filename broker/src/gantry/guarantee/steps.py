"""Database work as steps without input or output: a generator yields a `Query` and is sent its `QueryAnswer`.

    def withdrawn(...) -> Steps[bool]:
        answer = yield Query(say.verdict, {"message_id": ..., "consumer_group": ...})
        return bool(answer.rows)

The same steps run on any driver, blocking or not (`running`), and in a test on no database at all.  An error of the
driver ends the steps: its transaction is not to be gone on with.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Query(NamedTuple):
    """One statement with parameters `:name`, and their values."""

    text: str
    values: Mapping[str, object]


class QueryAnswer(NamedTuple):
    """What a statement did: how many rows it changed, and the rows that it returned."""

    changed: int
    rows: Sequence[Sequence[object]] = ()


Steps = Generator[Query, QueryAnswer, T]


def in_order(texts: Sequence[str], values: Mapping[str, object]) -> Steps[int]:
    """Run statements one after the other with the same values; return how many rows the last one changed."""
    changed = 0
    for text in texts:
        changed = (yield Query(text, values)).changed
    return changed
