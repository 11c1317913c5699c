"""What to change about a consumer group on one broker group, and whether to reset its offsets; pure.

A reset is carried out once for each request id.  The status decides: a reset is entered there as Running before it
begins, only on the version of the object that was read, so of two operators only one goes on; and as Done afterwards.
A reset that is found Running counts as under way for `STALE_MS`.  After that it counts as interrupted and is done
again: to the same instant, and not while members are online, unless `force` is set.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from gantry.model.subscription import GroupConfig
from gantry_operator.api.consumergroup import ConsumerGroup

RUNNING, DONE = "Running", "Done"
STALE_MS = 60_000


class ResetState(Enum):
    """The state of a requested reset."""

    NOT_ASKED = "NotAsked"
    DONE = "Done"
    RUN = "Run"
    MEMBERS_ONLINE = "MembersOnline"
    TOPIC_NOT_FOUND = "TopicNotFound"
    RUNNING = "Running"  # by another operator process


def change(group: ConsumerGroup, config: GroupConfig | None) -> GroupConfig | None:
    """Return the next configuration to set on a broker group; None when nothing is to change."""
    if group.about.is_observed:
        return None
    present = config or GroupConfig(group.about.name)
    wanted = replace(
        present,
        consume_enable=group.is_enabled,
        consume_broadcast_enable=group.may_broadcast,
        retry_times_max=group.attempts_max,
        consume_orderly=present.consume_orderly if group.is_orderly is None else group.is_orderly,
    )
    return wanted if wanted != config else None


def reset(
    group: ConsumerGroup, members: Collection[str], has_topic: bool, last: Mapping[str, Any], age_ms: int
) -> ResetState:
    """Return what to do about a reset; `last`: the last reset in the status, written `age_ms` ago."""
    asked = group.reset
    if asked is None or group.about.is_observed:
        return ResetState.NOT_ASKED
    is_known = last.get("requestId") == asked.request_id
    if is_known and last.get("result") == DONE:
        return ResetState.DONE
    if members and not asked.is_forced:
        return ResetState.MEMBERS_ONLINE
    if not has_topic:
        return ResetState.TOPIC_NOT_FOUND
    if is_known and 0 <= age_ms < STALE_MS:
        return ResetState.RUNNING
    return ResetState.RUN
