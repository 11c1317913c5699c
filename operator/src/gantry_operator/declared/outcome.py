"""The result of a pass over a declared object on the brokers, and the status made from it; pure.

A condition keeps its time until its status changes, and texts hold nothing that changes by itself.  So the status of an
unchanged object is not written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gantry_operator.api.brokercluster import Document
from gantry_operator.api.declared import About, Claim
from gantry_operator.api.wishes import PAUSE
from gantry_operator.conditions import Condition
from gantry_operator.status import documents

NUMBERS = ("members", "lag")


class Fault(NamedTuple):
    """Why one broker group was not changed; `is_final`: the same request would be refused again."""

    group: str
    is_final: bool
    text: str


@dataclass(frozen=True, slots=True)
class PassResult:
    """The result of one pass over an object on the brokers."""

    fields: Document
    faults: Sequence[Fault] = ()
    waits: tuple[str, str] = ("", "")  # reason and text, while a change is under way
    conditions: Sequence[Condition] = field(default_factory=list)


def no_cluster(about: About) -> Condition:
    """Return the condition Ready of an object whose cluster does not exist."""
    said = f"there is no BrokerCluster {about.cluster} in this namespace; apply it, and this follows"
    return Condition("Ready", False, "ClusterNotFound", said)


def conflict(about: About, older: Claim) -> Condition:
    """Return the condition Ready of an object whose topic or group is declared by an older object."""
    said = f"{older.key.name} is older and speaks for {about.name} of cluster {about.cluster} too; delete one of them"
    return Condition("Ready", False, "Conflict", said)


def ready(about: About, outcome: PassResult) -> Condition:
    """Return the condition Ready of an object after a pass over the brokers."""
    final = [each for each in outcome.faults if each.is_final]
    reason, text = outcome.waits
    if final:
        return Condition("Ready", False, "Unsupported", _listed(final))
    if outcome.faults:
        return Condition("Ready", False, "GroupUnavailable", _listed(outcome.faults))
    if reason:
        return Condition("Ready", False, reason, text)
    return Condition("Ready", True, "Observed" if about.is_observed else "Applied", "")


def status_of(about: About, former: Mapping[str, Any], said: Condition, outcome: PassResult, now: str) -> Document:
    """Return the whole status; `now` is the time of conditions that have just changed."""
    is_final = not said.holds and said.reason == "Unsupported"
    stalled = Condition("Stalled", is_final, said.reason if is_final else "NoError", said.message if is_final else "")
    conditions = [said, stalled, *outcome.conditions]
    if about.is_paused:
        conditions.append(Condition("Paused", True, "Annotated", f"nothing is changed while {PAUSE} is true"))
    return {
        "observedGeneration": about.generation,
        "conditions": documents(conditions, former, about.generation, now),
        **outcome.fields,
    }


def without_numbers(status: Mapping[str, Any]) -> Document:
    """Return the part of a status that is written at once when it changes."""
    return {key: each for key, each in status.items() if key not in NUMBERS}


def _listed(faults: Sequence[Fault]) -> str:
    return "; ".join(f"{each.group}: {each.text}" for each in sorted(faults))
