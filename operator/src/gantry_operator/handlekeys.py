"""The Secret with the keys that sign receipt handles, one for all doors of a cluster.

It is made once, when the Service of a door is there, and its keys are not changed.  It belongs to the Services of all
doors, and Kubernetes deletes it with the last of them: the operator may not delete Secrets.  If others deleted it, it
is made again as it was where this process has read it, else with a new key.  A Secret that a user made has no such
owner, and gets none.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from typing import Protocol

from gantry_operator.api.brokercluster import BrokerCluster, Document, Key
from gantry_operator.api.doorspec import DOORS
from gantry_operator.desired import doors as desired
from gantry_operator.doorseen import DoorFault
from gantry_operator.kube import folder_in
from gantry_operator.secretlines import field, lines

KEY_BYTES, KEYS_MAX, COMMENT = 32, 16, b"#"  # as `gantry.gateway.keys` reads them


class SecretMaker(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def get(self, path: str) -> Document | None: ...
    async def create(self, document: Document) -> bool: ...
    async def merge(self, path: str, change: Document) -> None: ...


class HandleKeys:
    """Reads and makes the keys of all clusters, and remembers them."""

    def __init__(self, kube: SecretMaker) -> None:
        self._kube = kube
        self._known: dict[Key, bytes] = {}  # the whole field, so that it is made again as it was

    async def read(self, cluster: BrokerCluster, services: Sequence[Document]) -> list[str] | DoorFault:
        """Return the keys, empty while there are none; a fault when they cannot be used.

        `services` are those of all wanted doors; without any the Secret is not made yet.
        """
        path = f"{folder_in('Secret', cluster.key.namespace)}/{cluster.handle_secret}"
        found = await self._kube.get(path)
        if services and not cluster.wishes.is_paused:
            owners = [_owner(each) for each in services]
            found = await (self._make(cluster, owners) if found is None else self._own(cluster, path, found, owners))
        if found is None:
            return []
        read = field(found, desired.KEYS, KEYS_MAX, COMMENT)
        if isinstance(read, str):
            hint = "put the former value back; or delete the Secret, and it is made again"
            said = f"Secret {cluster.handle_secret}: {read}; no pod with it is changed until it can be used; {hint}"
            return DoorFault("SecretInvalid", said)
        self._known[cluster.key] = read
        return [line.decode("latin-1") for line in lines(read, COMMENT)]

    def forget(self, key: Key) -> None:
        """Forget the keys of a deleted cluster."""
        self._known.pop(key, None)

    async def _make(self, cluster: BrokerCluster, owners: Sequence[Document]) -> Document | None:
        """Make the missing Secret; None when another process has made it meanwhile."""
        kept = self._known.get(cluster.key) or secrets.token_hex(KEY_BYTES).encode()
        document = desired.secret(cluster, owners, base64.b64encode(kept).decode())
        return document if await self._kube.create(document) else None

    async def _own(self, cluster: BrokerCluster, path: str, found: Document, owners: Sequence[Document]) -> Document:
        """Make the Secret belong to these Services too, before one of the others goes; return it."""
        about = found["metadata"]
        has: list[Document] = about.get("ownerReferences", [])
        names = {cluster.door(kind) for kind in DOORS}
        is_ours = any(each["kind"] == "Service" and each["name"] in names for each in has)
        missing = [each for each in owners if each["uid"] not in {one["uid"] for one in has}]
        if is_ours and missing:
            change = {"ownerReferences": [*has, *missing], "resourceVersion": about["resourceVersion"]}
            await self._kube.merge(path, {"metadata": change})
        return found


def _owner(service: Document) -> Document:
    about = service["metadata"]
    return {"apiVersion": "v1", "kind": "Service", "name": about["name"], "uid": str(about["uid"])}
