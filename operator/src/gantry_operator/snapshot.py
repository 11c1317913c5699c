"""What is, as values: groups by their register and their pods.  Nothing here asks anybody.

The register is the truth about who leads; a pod's readiness only says whether it serves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gantry.replication.members import SyncSet, parse_set
from gantry.replication.record import Phase, parse_holder
from gantry_operator.api.brokercluster import LABEL_ROLE, BrokerCluster, Group

_PREFIX = "gantrymq.io/"
_REVISION = "controller-revision-hash"


@dataclass(frozen=True, slots=True)
class Pod:
    """One member's."""

    name: str
    uid: str
    is_ready: bool  # and not on its way out
    is_going: bool  # somebody deleted it, and its process has its time to end
    role: str  # as its label says
    revision: str  # of the template that it was made from


@dataclass(frozen=True, slots=True)
class Register:
    """A Lease, as far as people are told of it; no decision is made on this reading."""

    phase: str
    epoch: int
    master: int | None  # ordinal
    in_sync: SyncSet


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """One group."""

    group: Group
    register: Register | None
    pods: Mapping[str, Pod]
    revision: str = ""  # of the template as it is now; empty while the controller has not seen it

    @property
    def master_pod(self) -> str:
        """Who leads; empty when nobody does."""
        if self.register is None or self.register.master is None:
            return ""
        return self.group.pod(self.register.master)

    @property
    def is_writable(self) -> bool:
        """A master that serves."""
        pod = self.pods.get(self.master_pod)
        return pod is not None and pod.is_ready

    @property
    def outdated(self) -> list[Pod]:
        """Pods of an older template, by ordinal; none while nobody knows which one is current."""
        here = [self.pods[name] for name in self.group.pods if name in self.pods]
        return [pod for pod in here if self.revision and pod.revision != self.revision]

    def roles(self) -> dict[str, str]:
        """Which label each pod should have."""
        return {pod: "master" if pod == self.master_pod else "slave" for pod in self.pods}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster."""

    cluster: BrokerCluster
    groups: Sequence[GroupSeen]
    nameservers_ready: int


def pod_seen(document: Mapping[str, Any]) -> Pod:
    """A pod's document as a value."""
    about, conditions = document["metadata"], document.get("status", {}).get("conditions", [])
    serves = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    is_going = "deletionTimestamp" in about
    labels = about.get("labels", {})
    return Pod(
        about["name"],
        about["uid"],
        serves and not is_going,
        is_going,
        labels.get(LABEL_ROLE, ""),
        labels.get(_REVISION, ""),
    )


def revision_seen(document: Mapping[str, Any] | None) -> str:
    """Of a StatefulSet: the revision that its pods should have; empty while its controller is behind."""
    if document is None:
        return ""
    status = document.get("status", {})
    if status.get("observedGeneration", -1) < document["metadata"].get("generation", 0):
        return ""
    return str(status.get("updateRevision", ""))


def register_seen(document: Mapping[str, Any] | None) -> Register | None:
    """A Lease's document as a value; None for none, and for one that cannot be read (the failover loop complains)."""
    if document is None:
        return None
    spec, annotations = document.get("spec", {}), document["metadata"].get("annotations", {})
    try:
        holder = parse_holder(spec.get("holderIdentity") or "")
        phase = Phase(annotations[f"{_PREFIX}phase"])
        in_sync = parse_set(annotations[f"{_PREFIX}sync-set"])
        return Register(phase.value, int(spec["leaseTransitions"]), holder and holder.member.ordinal, in_sync)
    except (KeyError, ValueError):
        return None
