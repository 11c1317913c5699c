"""Profiles: when a message is acknowledged, in one word instead of three keys.

    durable       on the disk of two members          SYNC_FLUSH, SYNC_MASTER, two in sync
    replicated    in the memory of two members        ASYNC_FLUSH, SYNC_MASTER, two in sync
    fast          in the memory of one                ASYNC_FLUSH, ASYNC_MASTER

A key that is set anywhere is stronger than the profile.  A broker alone (`gantry standalone` without a secret for
slaves) has only the disk to choose: `durable` is SYNC_FLUSH there, and `replicated` would be an empty word.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from gantry.errors import ConfigError


class Profile(enum.StrEnum):
    """What a user asks for."""

    NONE = "none"
    DURABLE = "durable"
    REPLICATED = "replicated"
    FAST = "fast"


class Promise(NamedTuple):
    """What a profile means, in the words of the keys."""

    flush: str
    role: str
    min_in_sync: int


PROFILES: dict[str, Promise] = {
    Profile.DURABLE.value: Promise("SYNC_FLUSH", "SYNC_MASTER", 2),
    Profile.REPLICATED.value: Promise("ASYNC_FLUSH", "SYNC_MASTER", 2),
    Profile.FAST.value: Promise("ASYNC_FLUSH", "ASYNC_MASTER", 1),
}


def values(profile: Profile, is_alone: bool) -> dict[str, object]:
    """The keys that a profile stands for; ConfigError for one that a broker alone cannot keep."""
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
