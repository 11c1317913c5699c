"""Profiles: when a message is acknowledged, in one word instead of three keys.

    durable       on the disk of two members          SYNC_FLUSH, SYNC_MASTER, two in sync
    replicated    in the memory of two members        ASYNC_FLUSH, SYNC_MASTER, two in sync
    fast          in the memory of one                ASYNC_FLUSH, ASYNC_MASTER

A key that is set anywhere is stronger than the profile.  A broker without slaves (`gantry standalone` without a secret)
can only choose when to flush: `durable` is SYNC_FLUSH there, and `replicated` is refused.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from gantry.errors import ConfigError


class Profile(enum.StrEnum):
    """The names of the profiles."""

    NONE = "none"
    DURABLE = "durable"
    REPLICATED = "replicated"
    FAST = "fast"


class ProfileKeys(NamedTuple):
    """The values of the keys that a profile sets."""

    flush: str
    role: str
    min_in_sync: int


PROFILES: dict[str, ProfileKeys] = {
    Profile.DURABLE.value: ProfileKeys("SYNC_FLUSH", "SYNC_MASTER", 2),
    Profile.REPLICATED.value: ProfileKeys("ASYNC_FLUSH", "SYNC_MASTER", 2),
    Profile.FAST.value: ProfileKeys("ASYNC_FLUSH", "ASYNC_MASTER", 1),
}


def values(profile: Profile, is_alone: bool) -> dict[str, object]:
    """Return the keys that a profile sets; ConfigError for one that a broker without slaves cannot have."""
    if profile is Profile.NONE:
        return {}
    promise = PROFILES[profile]
    if not is_alone:
        return {
            "store.flush": promise.flush,
            "role": promise.role,
            "replication.min_in_sync": promise.min_in_sync,
        }
    if profile is Profile.REPLICATED:
        raise ConfigError("profile replicated: this broker is alone; choose durable or fast, or set up a group")
    return {"store.flush": promise.flush}
