"""What a standby looks at: the groups that it will have to care for when it leads.

Reads only, by a way that every replica has.  The failover loops follow each group from here on (`following`), so that a
master lost together with the operator that led costs the time of the Lease, and not that of suspicion after
it.  What cannot be read or is not there yet is looked at again; the passes of the master say what is wrong with it.
"""

from __future__ import annotations

from gantry_operator.api.brokercluster import Key
from gantry_operator.following import Following, Loops, Objects
from gantry_operator.kube import cluster_path

AGAIN_S, LATER_S = 5.0, 60.0


class Glances:
    """`once(key)`; answers when it wants to look again, None: there is no such cluster."""

    def __init__(self, kube: Objects, loops: Loops) -> None:
        self._kube = kube
        self._following = Following(kube, loops, makes=False)

    async def once(self, key: Key) -> float | None:
        """One look; ValueError for an object without a name."""
        found = await self._kube.get(cluster_path(key))
        if found is None:
            self._following.forget(key)
            return None
        followed = await self._following.begun(key, found)
        cluster = followed.snapshot.cluster
        if cluster.is_going and "Pod" not in followed.snapshot.unseen and not followed.listed.has_brokers:
            self._following.forget(key)
            return LATER_S
        is_whole = followed.key.key is not None and not followed.listed.failed
        return LATER_S if is_whole else AGAIN_S
