"""What a standby looks at: the groups that it will have to care for when it leads.

Reads only, by a way that every replica has.  The failover loops follow each group from here on (`watching`), so that a
master lost together with the operator that led costs the time of the Lease, and not that of suspicion after
it.  What cannot be read or is not there yet is looked at again; the passes of whoever leads say what is wrong with it.
"""

from __future__ import annotations

import base64
from typing import Protocol

from gantry_operator import observe
from gantry_operator.api import brokercluster
from gantry_operator.api.brokercluster import Key
from gantry_operator.kube import cluster_path
from gantry_operator.snapshot import Snapshot

AGAIN_S, LATER_S = 5.0, 60.0
_KEY = "key"


class Loops(Protocol):
    """The failover loops, as `watching.Watches` keeps them."""

    def keep(self, snapshot: Snapshot, key: bytes) -> None: ...
    def forget(self, key: Key) -> None: ...


class Glances:
    """`once(key)`; answers when it wants to look again, None: there is no such cluster."""

    def __init__(self, kube: observe.Reads, loops: Loops) -> None:
        self._kube = kube
        self._loops = loops

    async def once(self, key: Key) -> float | None:
        """One look; ValueError for an object that is of another definition."""
        found = await self._kube.get(cluster_path(key))
        if found is None:
            self._loops.forget(key)
            return None
        cluster = brokercluster.read(found)
        if cluster.is_going:
            self._loops.forget(key)
            return LATER_S
        secret = await self._kube.get(f"/api/v1/namespaces/{key.namespace}/secrets/{cluster.secret}")
        if secret is None or _KEY not in secret.get("data", {}):
            return AGAIN_S
        self._loops.keep(await observe.look(self._kube, cluster), base64.b64decode(secret["data"][_KEY]))
        return LATER_S
