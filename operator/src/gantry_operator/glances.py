"""Passes of a standby: it follows the groups that it has to manage when it becomes the leader.

It only reads, with a token that every replica has.  The failover loops follow each group (`following`).  So when a
master is lost together with the leading operator, the failover waits for the Lease, but not for the suspicion time
after it.  What cannot be read is tried again; the leader's passes report what is wrong.
"""

from __future__ import annotations

from gantry_operator.api.brokercluster import Key
from gantry_operator.following import Following, Loops, ObjectReader
from gantry_operator.kube import cluster_path

AGAIN_S, LATER_S = 5.0, 60.0


class Glances:
    """The standby's passes over clusters."""

    def __init__(self, kube: ObjectReader, loops: Loops) -> None:
        self._kube = kube
        self._following = Following(kube, loops, makes=False)

    async def once(self, key: Key) -> float | None:
        """Run one pass; return in how many seconds the next is due, None when the cluster does not exist.  ValueError
        for an object without a name.
        """
        found = await self._kube.get(cluster_path(key))
        if found is None:
            self._following.forget(key)
            return None
        followed = await self._following.start_loops(key, found)
        cluster = followed.snapshot.cluster
        if cluster.is_going and "Pod" not in followed.snapshot.unseen and not followed.listed.has_brokers:
            self._following.forget(key)
            return LATER_S
        is_whole = followed.key.key is not None and not followed.listed.failed
        return LATER_S if is_whole else AGAIN_S
