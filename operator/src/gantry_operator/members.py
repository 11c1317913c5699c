"""Requests to members at `/ha/v1`, by the addresses of their pods: their status, and orders.

No request takes longer than `ANSWER_S`, but a handover; members that do not answer are left out of the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from gantry.clock import Clock
from gantry.failover.asking import AskedMembers
from gantry.replication.haapi import HANDOVER
from gantry.replication.haproof import Keys
from gantry_operator.desired.brokers import HA_API_PORT
from gantry_operator.sightings import Addresses, Sightings
from gantry_operator.snapshot import Answer, GroupSeen

ANSWER_S = 2.0


class Members:
    """Sends requests to members of all groups."""

    def __init__(self, sightings: Sightings, clock: Clock) -> None:
        self._sightings = sightings
        self._clock = clock

    async def look(self, seen: GroupSeen, key: bytes) -> Mapping[int, Answer]:
        """Return the status of each member that answers, by ordinal."""
        asked = self._asked(seen, key)

        async def one(ordinal: int) -> Answer | None:
            config, state = await asyncio.gather(asked.config(ordinal), asked.look(ordinal))
            if config is None or state is None:
                return None
            lost = state.get("lostMessages", 0)
            return Answer(config, str(state.get("refusedByMaster", "")), lost if isinstance(lost, int) else 0)

        try:
            answers = await asyncio.gather(*map(one, range(seen.size)))
        finally:
            await asked.close()
        return {ordinal: answer for ordinal, answer in enumerate(answers) if answer is not None}

    async def order(self, seen: GroupSeen, key: bytes, ordinal: int, path: str, **more: Any) -> str:
        """Order a member to do something; return why it did not, an empty text when it did."""
        asked = self._asked(seen, key)
        try:
            if path == HANDOVER:
                is_done = await asked.hand_over(ordinal, int(more["target"]), float(more["within_s"]))
            else:
                is_done = await asked.order(ordinal, path, **more) is not None
        finally:
            await asked.close()
        return "" if is_done else asked.why.get(ordinal, "it did not say why")

    def _asked(self, seen: GroupSeen, key: bytes) -> AskedMembers:
        group = seen.group
        pods = [group.pod(ordinal) for ordinal in range(seen.size)]
        addresses = Addresses(self._sightings, group.cluster.key.namespace, pods, HA_API_PORT)
        uid = "" if seen.register is None else seen.register.cluster_uid
        return AskedMembers(uid, group.name, addresses.__getitem__, Keys(key), self._clock, ANSWER_S)
