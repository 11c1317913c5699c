"""Who led a simulated group since when, and which committed offsets the member that leads now has to know.

What may be gone is what docs/acknowledged.md and docs/failover.md name, and nothing else:

    taken by a master that was replaced already
    taken within TOLD_S before the master failed: slaves are told of commits once a second, before the next messages
    taken, or told to the next master, less than SAVED_S before its process died; in order it stops with a save

A planned change keeps all of them (`handed_over`).  A group's first offset is never gone.

That slaves were told is seen from outside: a message that was sent to the master TOLD_S later was acknowledged, so
every in-sync slave has it, and got the commit before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation.ledger import Attempt, Ledger
    from simulation.member import Member

TOLD_S = 1.3  # a second, and a tick of the master
SAVED_S = 6.0  # `clients.offsets_save_s`, and what a save takes


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset that was committed: asked for and answered, by whom; is_first: no other request came before it."""

    offset: int
    asked_s: float
    acked_s: float
    acked_by: str
    is_first: bool


@dataclass(frozen=True, slots=True)
class Lead:
    """A member began to lead, in this life of its broker; is_planned: the one before it said that it hands over."""

    since_s: float
    address: str
    life: object
    is_planned: bool = False


class Leads:
    """Those of one run."""

    def __init__(self, members: Sequence[Member], ledger: Ledger) -> None:
        self._members = {member.address: member for member in members}
        self._leads: list[Lead] = []
        self._handing_over = ""  # who said so since it began to lead
        self._acked: dict[str, list[tuple[float, float]]] = {}  # by master: when messages were sent and acknowledged
        ledger.on_acknowledged.append(self._acknowledged)

    @property
    def count(self) -> int:
        """How often somebody began to lead."""
        return len(self._leads)

    def began(self, now_s: float, address: str) -> None:
        """This member leads now."""
        before = self._leads[-1].address if self._leads else ""
        is_planned = bool(before) and self._handing_over == before
        self._handing_over = ""
        self._leads.append(Lead(now_s, address, self._members[address].broker, is_planned))

    def handed_over(self, address: str) -> None:
        """This member says that its planned change is done: the next master knows all that it knew."""
        if self._leads and self._leads[-1].address != address:
            # The answer came after the next master began.
            is_planned = len(self._leads) > 1 and self._leads[-2].address == address
            self._leads[-1] = replace(self._leads[-1], is_planned=is_planned)
        else:
            self._handing_over = address

    def is_last(self, address: str) -> bool:
        """Whether nobody began to lead after this member, and it still lives as it did then."""
        if not self._leads or self._leads[-1].address != address:
            return False
        return self._members[address].broker is self._leads[-1].life

    def keeps(self, commit: Commit) -> bool:
        """Whether the member that leads now has to know of it."""
        before = [lead for lead in self._leads if lead.since_s <= commit.asked_s]
        after = [lead for lead in self._leads if lead.since_s > commit.asked_s]
        if not before or before[-1].address != commit.acked_by or any(one.since_s <= commit.acked_s for one in after):
            return False
        if commit.is_first:
            return True
        known_s, due_s = commit.acked_s, commit.acked_s + TOLD_S
        for former, following in pairwise([before[-1], *after]):
            if not self._inherits(former, following, known_s, due_s):
                return False
            known_s = due_s = following.since_s  # all that it has it tells its slaves first
        return True

    def _inherits(self, former: Lead, following: Lead, known_s: float, due_s: float) -> bool:
        """Whether the following master has what the former one knew since known_s and told its slaves from due_s on."""
        if following.is_planned:
            return True
        member = self._members[following.address]
        died_s = max((one for one in member.died_s if one < following.since_s), default=0.0)
        if former.address == following.address:
            held_s = known_s
            if held_s > died_s:
                return True
        else:
            acked = self._acked.get(former.address, [])
            told = [(sent_s, acked_s) for sent_s, acked_s in acked if sent_s >= due_s and acked_s < following.since_s]
            if any(sent_s >= died_s for sent_s, _ in told):
                return True  # a new link brings everything again
            held_s = min((acked_s for _, acked_s in told), default=died_s)
        first_died_s = min((one for one in member.died_s if one >= held_s), default=died_s)
        return held_s + SAVED_S <= first_died_s and not member.had_trouble(held_s, first_died_s)

    def _acknowledged(self, attempt: Attempt) -> None:
        assert attempt.acked_at is not None
        self._acked.setdefault(attempt.acked_by, []).append((attempt.sent_at, attempt.acked_at))
