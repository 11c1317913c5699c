"""Requests of users by annotations of a cluster: actions to do once, and pauses.

    pause-reconciliation: "true"              nothing is changed; failover goes on, and the status is written
    pause-failover: "true"                    no group is sealed because its master is silent
    manual-rolling-update: VALUE              pods are replaced once for each new value; also on a StatefulSet or a Pod
    force-failover: GROUP/ORDINAL@EPOCH       this member becomes the master; valid for exactly that epoch.
    `!accept-split`
                                              behind it does not wait for members that may still be acknowledging
    reclone: UID                              on a Pod, with its own uid: its log is thrown away and copied again

All below `gantrymq.io/`.  A value that cannot be read is kept as it is, so that the status can name it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "gantrymq.io/"
PAUSE, PAUSE_FAILOVER = f"{PREFIX}pause-reconciliation", f"{PREFIX}pause-failover"
ROLL, FORCE, RECLONE = f"{PREFIX}manual-rolling-update", f"{PREFIX}force-failover", f"{PREFIX}reclone"
_FORCE = re.compile(r"b(\d{1,3})/(\d{1,2})@(\d{1,10})(!accept-split)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ForcedFailover:
    """The parsed value of the annotation force-failover."""

    group: int
    ordinal: int
    epoch: int
    accept_split: bool


@dataclass(frozen=True, slots=True)
class RequestedActions:
    """The requests in a BrokerCluster's annotations; empty texts: not requested."""

    is_paused: bool = False
    is_failover_paused: bool = False
    roll: str = ""
    force: str = ""

    @property
    def choice(self) -> ForcedFailover | None:
        """Parse `force`; None when it is empty or cannot be read."""
        found = _FORCE.fullmatch(self.force)
        return ForcedFailover(int(found[1]), int(found[2]), int(found[3]), bool(found[4])) if found else None


def read_wishes(annotations: Mapping[str, str]) -> RequestedActions:
    """Read the requests from an object's annotations."""
    return RequestedActions(
        annotations.get(PAUSE, "") == "true",
        annotations.get(PAUSE_FAILOVER, "") == "true",
        annotations.get(ROLL, "")[:63],
        annotations.get(FORCE, "").strip()[:100],
    )
