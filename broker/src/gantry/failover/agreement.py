"""The terms that a coordinator goes by: the weakest of what the members say and of what it was told itself.

A coordinator has no terms of its own.  What a user typed for it is one more answer (`Policy`), which can make it wait
longer and never shorter.  A member of the previous version, which does not say its terms, counts as one that
acknowledges alone.  What differs is named in the reason of every decision that waits.

    SYNC_MASTER    only if every answer says so        minInSync    the least
    suspicion      the longest, and two renewals of every member at least
    lease          the longest, and three renewals of every member at least
    members        the most, where the coordinator does not know the size of the group for certain
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

from gantry.failover.decide import Policy
from gantry.replication.hastate import MemberState
from gantry.replication.members import MEMBERS_MAX
from gantry.replication.terms import Terms
from gantry.replication.timers import TIMERS, Timers, derive_timers, derive_usual_timers


def untold(replicas: int, preferred: int = 0) -> Policy:
    """Return the policy of a coordinator that was told nothing: any answer of a member is weaker."""
    return Policy(replicas, MEMBERS_MAX, True, 0.0, preferred)


def weakest(told: Policy, lease_s: int, answers: Mapping[int, MemberState]) -> tuple[Policy, Timers]:
    """Return the policy and the timers of one round.

    told, lease_s: what the coordinator was told; a suspicion and a lease of 0: nothing, so that the members' renewals
    decide.
    """
    said = [state.terms for state in answers.values()]
    known = [terms for terms in said if terms is not None]
    renew_every_s = max((terms.renew_every_s for terms in known), default=0.0)
    usual = derive_usual_timers(renew_every_s) if renew_every_s else TIMERS["default"]
    suspect_after_s = max(told.suspect_after_s or usual.suspect_after_s, 2 * renew_every_s)
    lease_s = max(lease_s or usual.lease_s, ceil(3 * renew_every_s), int(suspect_after_s) + 1)
    policy = replace(
        told,
        replicas=told.replicas if told.knows_size else max([told.replicas, *(terms.members for terms in known)]),
        min_in_sync=min([told.min_in_sync, *(1 if terms is None else terms.min_in_sync for terms in said)]),
        is_sync_master=told.is_sync_master and all(terms is not None and terms.is_sync for terms in said),
        suspect_after_s=suspect_after_s,
    )
    return policy, derive_timers(suspect_after_s, lease_s)


def differences(told: Policy, answers: Mapping[int, MemberState]) -> str:
    """Return what does not agree, and who says what; an empty text when everything agrees."""
    said = {f"member {ordinal}": _shown(state.terms) for ordinal, state in sorted(answers.items())}
    said["this coordinator"] = {} if told.knows_size else {"members": str(told.replicas)}
    if not told.is_sync_master:
        said["this coordinator"] |= {"role": "ASYNC_MASTER"}
    if told.min_in_sync < MEMBERS_MAX:
        said["this coordinator"] |= {"minInSync": str(told.min_in_sync)}
    found = []
    for name in ("role", "minInSync", "renewEveryMs", "segmentBytes", "members"):
        values = {who: shown[name] for who, shown in said.items() if name in shown}
        if len(set(values.values())) > 1:
            found.append(f"{name} ({', '.join(f'{who}: {value}' for who, value in values.items())})")
    return ", ".join(found)


def _shown(terms: Terms | None) -> dict[str, str]:
    """Return the terms as texts by name; those of the previous version are not known."""
    return {"role": "unknown"} if terms is None else {name: str(value) for name, value in terms.to_document().items()}
