"""The key that the members of a cluster prove to each other and to the operator: the Secret `CLUSTER-ha`, field `key`.

One line of 16 bytes or more; during a change of the key two lines, of which brokers take both and the operator asks
with the first.  The operator makes the Secret once.

    it is there and can be read          that key
    it is there and cannot be used       the last key that was known; the fault names the Secret
    it is gone, the key is known         made again as it was: known to this process, or to its failover loops, which a
                                         standby has too
    it is gone, the key is not known,    made again and marked (`REPLACED`).  Brokers read the file again while they run
    and brokers may be running           and take both keys from then on (ADR replication-key-reread); until every
                                         broker that is older answers, the condition Stalled says so
    it is gone, and no broker is there   made again

A key is never replaced because its Secret cannot be used: the user who changed it may still have the right value.
"""

from __future__ import annotations

import base64
import secrets
from typing import NamedTuple, Protocol

from gantry_operator.api.brokercluster import GROUP, LABEL_CLUSTER, BrokerCluster, Document, Key
from gantry_operator.desired.labels import owned
from gantry_operator.hindrances import Hindrance
from gantry_operator.kube import KubeError, folder_in
from gantry_operator.podseen import seconds_of
from gantry_operator.refusals import is_refusal
from gantry_operator.secretlines import field, lines
from gantry_operator.snapshot import Snapshot

SECRET_BYTES = 32
REPLACED = f"{GROUP}/key-replaced"  # on the Secret: the former key was lost while brokers ran
_KEY, _LINES_MAX = "key", 2


class Secrets(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def get(self, path: str) -> Document | None: ...
    async def create(self, document: Document) -> bool: ...


class Knows(Protocol):
    """The part of `watching.Watches` that is used here."""

    def key_of(self, key: Key) -> bytes | None: ...


class HaKey(NamedTuple):
    """The key of a cluster, as far as it is known now."""

    key: bytes | None  # to ask members with; None: not known
    is_missing: bool = False  # there is no Secret
    fault: Hindrance | None = None  # why the Secret cannot be used
    is_replaced: bool = False  # brokers that started before it may not have it yet
    made_s: float = 0.0  # when the Secret was made; 0: not known
    error: KubeError | None = None  # the API server did not answer: the pass is to be repeated


class HaKeys:
    """The last known keys of all clusters."""

    def __init__(self, kube: Secrets, loops: Knows) -> None:
        self._kube = kube
        self._loops = loops
        self._known: dict[Key, bytes] = {}  # the whole field, so that it is made again as it was

    async def read(self, key: Key) -> HaKey:
        """Read the Secret of a cluster; an API server that does not answer is a fault in the result, no exception."""
        name = name_of(key)
        last = lines(self._known.get(key, b""))[:1]
        known = last[0] if last else self._loops.key_of(key)
        try:
            found = await self._kube.get(f"{folder_in('Secret', key.namespace)}/{name}")
        except KubeError as error:
            return _failed(known, f"Secret {name} cannot be read", error)
        if found is None:
            return HaKey(known, is_missing=True)
        said = field(found, _KEY, _LINES_MAX)
        if isinstance(said, str):
            hint = (
                "put the former value back, or delete the Secret: it is made again as it was"
                if known is not None
                else "put the former value back; if it is lost, delete the Secret, and a new key is made, which "
                "running brokers take within two minutes"
            )
            text = f"Secret {name}: {said}; brokers that start cannot join their group; {hint}"
            return HaKey(known, fault=Hindrance("SecretInvalid", text, holds=True))
        self._known[key] = said
        is_replaced = REPLACED in (found["metadata"].get("annotations") or {})
        made_s = seconds_of(found["metadata"].get("creationTimestamp") or "")
        return HaKey(lines(said)[0], is_replaced=is_replaced, made_s=made_s)

    async def make(self, cluster: BrokerCluster, known: bytes | None, may_run: bool) -> HaKey:
        """Make the missing Secret, unless another process made it first.  `may_run`: brokers may be running."""
        kept = self._known.get(cluster.key) or known
        wanted: Document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": cluster.secret},
            "type": "Opaque",
            "data": {_KEY: base64.b64encode(kept or secrets.token_hex(SECRET_BYTES).encode()).decode()},
        }
        if kept is None and may_run:
            wanted["metadata"]["annotations"] = {REPLACED: "true"}
        document = owned(cluster, wanted, {LABEL_CLUSTER: cluster.key.name})
        try:
            await self._kube.create(document)
        except KubeError as error:
            return _failed(known, f"Secret {cluster.secret} is missing and cannot be made", error)
        made = await self.read(cluster.key)
        if made.is_missing:  # a stale answer
            return _failed(known, f"Secret {cluster.secret} was made", KubeError("it", 0, "is not there yet"))
        return made

    def forget(self, key: Key) -> None:
        """Forget everything about a deleted cluster."""
        self._known.pop(key, None)


def name_of(key: Key) -> str:
    """Return the Secret's name; also for a cluster whose specification cannot be read."""
    return f"{key.name}-ha"


def replaced(found: HaKey, snapshot: Snapshot) -> list[Hindrance]:
    """Return a hindrance while brokers may not have a key that replaced a lost one; those started later have it."""
    silent = [
        pod.name
        for group in snapshot.groups
        for ordinal in range(group.size)
        if (pod := group.pod(ordinal)) is not None
        and ordinal not in group.answers
        and (not found.made_s or pod.started_s < found.made_s)
    ]
    if not found.is_replaced or not silent:
        return []
    name = snapshot.cluster.secret
    said = (
        f"Secret {name} was lost while brokers ran, and a new key was made; {', '.join(silent)} cannot be asked with "
        "it yet, and no group of theirs fails over. Brokers take it within two minutes; those of an older image when "
        "all pods of their group were deleted at once (kubectl delete pod -l gantrymq.io/group=b0,gantrymq.io/cluster="
        f"{snapshot.cluster.key.name}), or put the former key back into the Secret"
    )
    return [Hindrance("KeyReplaced", said, holds=True)]


def _failed(known: bytes | None, said: str, error: KubeError) -> HaKey:
    """Make the result of a failed request; without an answer it is a hindrance only where no key is known."""
    if is_refusal(error):
        return HaKey(known, fault=Hindrance("SecretRefused", f"{said}: {error}", holds=True))
    fault = None if known is not None else Hindrance("SecretNotRead", f"{said}: {error}", holds=True)
    return HaKey(known, fault=fault, error=error)
