"""What any master has to say of topics: the value of the last change that was answered.

Nothing is known of a topic while it is being changed, and after two changes at the same time.  A change without an
answer may still be carried out, by the member that was asked, until another life of a member leads; whether it was, is
never known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from simulation.linear import Value


@dataclass(eq=False, slots=True)
class Change:
    """A topic is created or deleted; is_apart: no other change of it is carried out at the same time."""

    topic: str
    value: Value
    is_apart: bool


@dataclass(frozen=True, eq=False, slots=True)
class Known:
    """From an answered change until the next one begins."""

    value: Value


@dataclass(slots=True)
class KnownTopics:
    """Those of one run; `values` lacks a topic of which nothing is known."""

    values: dict[str, Known] = field(default_factory=dict)
    _open: dict[str, list[Change]] = field(default_factory=dict)
    _doubtful: list[Change] = field(default_factory=list)

    def begin(self, topic: str, value: Value) -> Change:
        """It is about to be asked for."""
        others = self._open.setdefault(topic, [])
        change = Change(topic, value, is_apart=not others)
        for other in others:
            other.is_apart = False
        others.append(change)
        self.values.pop(topic, None)
        return change

    def may_become(self, topic: str, value: Value) -> bool:
        """Whether a change to this value has no answer yet: who sees it may have seen what goes with its master."""
        return any(change.value == value for change in self._open.get(topic, []))

    def answered(self, change: Change) -> None:
        """It was carried out."""
        self._open[change.topic].remove(change)
        if change.is_apart:
            self.values[change.topic] = Known(change.value)

    def unanswered(self, change: Change, is_over: bool) -> None:
        """Nobody knows; is_over: another life leads since it was asked for."""
        if is_over:
            self._open[change.topic].remove(change)
        else:
            self._doubtful.append(change)

    def led(self) -> None:
        """Another life of a member leads."""
        for change in self._doubtful:
            self._open[change.topic].remove(change)
        self._doubtful.clear()
