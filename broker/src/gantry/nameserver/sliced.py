"""Work in slices that has a result, for those who take all of them at once and those who give way in between."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class SlicedWork(Generic[T]):
    """To be iterated over once, a slice each time; `result` is there afterwards."""

    result: T

    def __init__(self, steps: Generator[None, None, T]) -> None:
        self._steps = steps

    def __iter__(self) -> Iterator[None]:
        self.result = yield from self._steps

    def at_once(self) -> T:
        """Do all slices in one go. Return the result."""
        for _ in self:
            pass
        return self.result
