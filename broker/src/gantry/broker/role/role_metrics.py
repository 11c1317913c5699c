"""The samples that a master's and a slave's role give to `/metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
