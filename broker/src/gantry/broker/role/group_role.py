"""The interface that the master's and the slave's role have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gantry.replication.hastate import MemberRole


@dataclass(frozen=True, slots=True)
class RoleMetrics:
    """The samples of one role; None and empty where the role has none.  Slaves by brokerId, the master as "0"."""

    epoch: int | None = None
    in_sync: int | None = None  # members
    in_sync_needed: int | None = None  # members
    in_sync_changes: int | None = None
    serving_lease_s: float | None = None
    connected: Mapping[str, bool] = field(default_factory=dict)
    lag_bytes: Mapping[str, int] = field(default_factory=dict)


class GroupRole(Protocol):
    """Implemented by `MasterRole` and `SlaveRole`."""

    is_reshaping: bool  # the next start cuts or replaces the log

    def status(self) -> MemberRole:
        """The role that works now; NONE for a sealed master, and for a slave without its master."""
        ...

    def step_down(self, epoch: int) -> None:
        """Stop in every epoch below this one; in one turn of the loop."""
        ...

    def why_not_ready(self) -> str:
        """Why clients should go elsewhere; empty: they need not."""
        ...

    def report(self) -> Mapping[str, object]:
        """The role's part of `/ha/v1/state`."""
        ...

    def metrics(self) -> RoleMetrics:
        """The role's samples at this moment."""
        ...

    async def stop(self) -> None:
        ...

    def tick(self) -> None:
        """Do what goes by the clock; called ten times a second."""
        ...
