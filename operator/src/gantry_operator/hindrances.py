"""Problems that keep a cluster from its specification, while everything else of it goes on; pure.

Each is a reason and a text for the condition Stalled: a specification that cannot be read (`Invalid`), a key that
cannot be used (`SecretInvalid`, `KeyReplaced`), a list or an object that the API server refuses (`Refused`).  The first
one names the reason; all texts are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gantry_operator import status
from gantry_operator.conditions import Condition
from gantry_operator.kube import KubeError
from gantry_operator.refusals import Refusals, is_refusal
from gantry_operator.snapshot import Snapshot


class Hindrance(NamedTuple):
    """One problem; `holds`: no member is taken away while it lasts."""

    reason: str
    message: str
    holds: bool = False


def of_lists(failed: Mapping[str, KubeError]) -> list[Hindrance]:
    """Return a hindrance for lists that the API server refuses; unanswered ones are only tried again."""
    said = [f"{kind}s ({error})" for kind, error in sorted(failed.items()) if is_refusal(error)]
    if not said:
        return []
    hint = "grant the operator's role the right to list them; failover goes on, and what depends on them waits"
    return [Hindrance("Refused", f"the API server refuses to list {', '.join(said)}; {hint}")]


def of_refusals(refusals: Refusals) -> list[Hindrance]:
    """Return a hindrance for objects that the API server refused in this pass."""
    return [Hindrance("Refused", refusals.message)] if refusals else []


def of_doors(snapshot: Snapshot) -> list[Hindrance]:
    """Return a hindrance for each fault that keeps a door from being changed; nothing else waits for it."""
    faults = dict.fromkeys(each.fault for each in snapshot.doors.values() if each.fault is not None)
    return [Hindrance(each.reason, each.message) for each in faults]


def applied(found: Iterable[Condition], hindrances: Iterable[Hindrance]) -> list[Condition]:
    """Return the conditions with all of these hindrances in them."""
    told = list(found)
    for each in reversed(list(hindrances)):
        told = status.hindered(told, each.reason, each.message)
    return told
