"""What is, as values: groups by their register, their pods and what members say.  Nothing here asks anybody.

The register is the truth about who leads; a pod's readiness only says whether it serves; what a member answers is for
people, and for what is asked of it next.  No decision about failover is made on any of this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gantry.replication.members import SyncSet, parse_set
from gantry.replication.record import Phase, Store, parse_holder, parse_stores
from gantry_operator.api.brokercluster import BrokerCluster, Document, Group
from gantry_operator.api.wishes import ROLL
from gantry_operator.podseen import Pod, seconds_of

_PREFIX = "gantrymq.io/"
# Anyone who starts says nothing for a while.
SILENT_S = 60.0


@dataclass(frozen=True, slots=True)
class Register:
    """A Lease, as far as people are told of it; no decision is made on this reading."""

    phase: str
    epoch: int
    master: int | None  # ordinal
    in_sync: SyncSet
    cluster_uid: str = ""
    stores: Mapping[int, Store] = field(default_factory=dict)
    renewed_s: float = 0.0  # wall clock of no matter who wrote it
    lease_s: int = 15

    @property
    def ordinals(self) -> frozenset[int]:
        """Of the in-sync set."""
        return frozenset(member.ordinal for member in self.in_sync)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a member says of itself."""

    config: Mapping[str, object]  # by dotted key, as it runs
    refused: str = ""  # its master will not have it as it is
    lost: int = 0  # messages that ASYNC_MASTER had acknowledged and that were cut from its log, over all its lives


class Order(NamedTuple):
    """What a member, or the register of its group, was told to do."""

    what: str
    ordinal: int
    detail: str = ""


class Denied(NamedTuple):
    """An order that was refused."""

    reason: str
    is_due: bool  # it may be given again


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """One group; pods, answers and claims are of every ordinal that there is, wanted or not."""

    group: Group
    register: Register | None
    pods: Mapping[str, Pod]
    revision: str = ""  # of the template as it is now; empty while the controller has not seen it
    replicas: int | None = None  # of the set as it is; None: there is none
    set_roll: str = ""  # a person wants the pods of the set replaced once for this value
    answers: Mapping[int, Answer] = field(default_factory=dict)
    claims: Mapping[int, str] = field(default_factory=dict)  # uid of a volume of an ordinal that is not wanted
    blocked: str = ""  # why nobody can be elected, as the failover loop said last
    refused: str = ""  # why the failover that a person asked for is not done
    absent: frozenset[int] = frozenset()  # as `lost` said when members had been asked
    denied: Mapping[Order, Denied] = field(default_factory=dict)  # what members refused to do
    unwatched: str = ""  # why it has no failover loop; empty: it has one

    @property
    def size(self) -> int:
        """How many ordinals there are: those that are wanted, and those that are not yet gone."""
        wanted = self.group.cluster.brokers.replicas
        here = [ordinal + 1 for ordinal in range(wanted, _ORDINALS_MAX) if self.group.pod(ordinal) in self.pods]
        kept = [ordinal + 1 for ordinal in (self.register.ordinals if self.register else ())]
        return max([wanted, self.replicas or 0, *here, *kept])

    @property
    def set_replicas(self) -> int:
        """How many the set should have now; a new set begins with all that the register counts on."""
        return self.size if self.replicas is None else self.replicas

    def pod(self, ordinal: int) -> Pod | None:
        """Of this ordinal."""
        return self.pods.get(self.group.pod(ordinal))

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
        return pod is not None and pod.works

    @property
    def outdated(self) -> list[Pod]:
        """Pods of an older template, by ordinal, and those that a person wants replaced; none while nobody knows which
        template is current.
        """
        here = [pod for ordinal in range(self.size) if (pod := self.pod(ordinal)) is not None]
        return [pod for pod in here if self.revision and (pod.revision != self.revision or pod.is_marked)]

    def lost(self, now_s: float) -> frozenset[int]:
        """Members that run, as far as the kubelet said last, and of whom nothing is heard for some time."""
        pods = [(ordinal, self.pod(ordinal)) for ordinal in range(self.size) if ordinal not in self.answers]
        return frozenset(
            ordinal
            for ordinal, pod in pods
            if pod is not None and pod.is_running and not pod.works
            if pod.unready_since and now_s - seconds_of(pod.unready_since) >= SILENT_S
        )

    def roles(self) -> dict[str, str]:
        """Which label each pod should have."""
        return {pod: "master" if pod == self.master_pod else "slave" for pod in self.pods}


_ORDINALS_MAX = 5


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster."""

    cluster: BrokerCluster
    groups: Sequence[GroupSeen]
    nameservers: Sequence[Pod] = ()
    missing_secrets: Sequence[str] = ()  # that images should be pulled with
    sets: Mapping[str, Document] = field(default_factory=dict)  # by name, as the API server has them
    volumes: Sequence[str] = ()  # what differs from spec.brokers.storage, one text for each volume
    unapplied: Sequence[str] = ()  # objects that differ from the specification while it is paused
    unseen: frozenset[str] = frozenset()  # kinds whose list failed: nothing of them is known

    @property
    def nameservers_ready(self) -> int:
        """How many name servers serve."""
        return sum(pod.works for pod in self.nameservers)

    @property
    def image(self) -> str:
        """What pods run, as their sets name it, the image of most of them first; empty while there is none."""
        pods = [*self.nameservers, *(pod for group in self.groups for pod in group.pods.values())]
        counted = Counter(name for pod in pods if (name := pod.asked_image or pod.image))
        return ", ".join(name for name, _ in sorted(counted.items(), key=lambda each: (-each[1], each[0])))


def replicas_seen(document: Mapping[str, Any] | None) -> int | None:
    """Of a StatefulSet: how many pods it is told to have."""
    return None if document is None else int(document["spec"]["replicas"])


def roll_seen(document: Mapping[str, Any] | None) -> str:
    """Of a StatefulSet: for which value its pods are to be replaced."""
    return "" if document is None else str(document["metadata"].get("annotations", {}).get(ROLL, ""))[:63]


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
        return Register(
            Phase(annotations[f"{_PREFIX}phase"]).value,
            int(spec["leaseTransitions"]),
            holder and holder.member.ordinal,
            parse_set(annotations[f"{_PREFIX}sync-set"]),
            annotations.get(f"{_PREFIX}cluster-uid", ""),
            dict(parse_stores(annotations.get(f"{_PREFIX}stores", ""))),
            seconds_of(str(spec.get("renewTime") or "")),
            int(spec.get("leaseDurationSeconds") or 15),
        )
    except (KeyError, ValueError):
        return None
