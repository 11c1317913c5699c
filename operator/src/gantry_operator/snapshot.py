"""The present state of a cluster as values: groups by their register, pods, and members' answers; without any I/O.

The register alone says which member is the master; a pod's readiness only says whether it serves.  Members' answers are
used for the status and for the next orders.  No decision about failover is based on any of this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gantry.replication.members import SyncSet, parse_set
from gantry.replication.record import MemberDisk, Phase, parse_holder, parse_stores
from gantry_operator.api.brokercluster import BrokerCluster, Document, Group
from gantry_operator.api.doorspec import DoorKind
from gantry_operator.api.wishes import ROLL
from gantry_operator.doorseen import DoorSeen
from gantry_operator.podseen import Pod, seconds_of

_PREFIX = "gantrymq.io/"
# A member that starts does not answer for a while.
SILENT_S = 60.0


@dataclass(frozen=True, slots=True)
class Register:
    """The register of a group (a Lease), as far as the status shows it; no decision is based on it."""

    phase: str
    epoch: int
    master: int | None  # ordinal
    in_sync: SyncSet
    cluster_uid: str = ""
    stores: Mapping[int, MemberDisk] = field(default_factory=dict)
    renewed_s: float = 0.0  # by the wall clock of the last writer
    lease_s: int = 15

    @property
    def ordinals(self) -> frozenset[int]:
        """Return the ordinals of the in-sync set."""
        return frozenset(member.ordinal for member in self.in_sync)


@dataclass(frozen=True, slots=True)
class Answer:
    """The status that a member returned."""

    config: Mapping[str, object]  # by dotted key, as it runs
    refused: str = ""  # why its master refuses to replicate to it
    lost: int = 0  # messages that ASYNC_MASTER had acknowledged and that were cut from its log, over all its starts


class Order(NamedTuple):
    """An order to a member, or to the register of its group."""

    what: str
    ordinal: int
    detail: str = ""


class Denied(NamedTuple):
    """The refusal of an order."""

    reason: str
    is_due: bool  # it may be given again


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """One group; pods, answers and claims are those of every existing ordinal, wanted or not."""

    group: Group
    register: Register | None
    pods: Mapping[str, Pod]
    revision: str = ""  # of the template as it is now; empty while the controller has not seen it
    replicas: int | None = None  # of the set as it is; None: there is none
    set_roll: str = ""  # the value of manual-rolling-update at the set
    answers: Mapping[int, Answer] = field(default_factory=dict)
    claims: Mapping[int, str] = field(default_factory=dict)  # uid of a volume of an ordinal that is not wanted
    blocked: str = ""  # why no member can be elected, by the last decision of the failover loop
    refused: str = ""  # why the failover that a user requested is not done
    absent: frozenset[int] = frozenset()  # the result of `lost` after members were asked
    denied: Mapping[Order, Denied] = field(default_factory=dict)  # what members refused to do
    unwatched: str = ""  # why it has no failover loop; empty: it has one

    @property
    def size(self) -> int:
        """Return the number of ordinals, wanted or still existing."""
        wanted = self.group.cluster.brokers.replicas
        here = [ordinal + 1 for ordinal in range(wanted, _ORDINALS_MAX) if self.group.pod(ordinal) in self.pods]
        kept = [ordinal + 1 for ordinal in (self.register.ordinals if self.register else ())]
        return max([wanted, self.replicas or 0, *here, *kept])

    @property
    def set_replicas(self) -> int:
        """Return how many replicas the set should have now; a new set begins with all that are in the register."""
        return self.size if self.replicas is None else self.replicas

    def pod(self, ordinal: int) -> Pod | None:
        """Return the pod of this ordinal; None when there is none."""
        return self.pods.get(self.group.pod(ordinal))

    @property
    def master_pod(self) -> str:
        """Return the name of the master's pod; an empty text when there is no master."""
        if self.register is None or self.register.master is None:
            return ""
        return self.group.pod(self.register.master)

    @property
    def is_writable(self) -> bool:
        """Return whether the group has a master whose server is ready."""
        pod = self.pods.get(self.master_pod)
        return pod is not None and pod.works

    @property
    def outdated(self) -> list[Pod]:
        """Return pods of an older template, by ordinal, and those whose replacement is requested; none while the
        current template is not known.
        """
        here = [pod for ordinal in range(self.size) if (pod := self.pod(ordinal)) is not None]
        return [pod for pod in here if self.revision and (pod.revision != self.revision or pod.is_marked)]

    def lost(self, now_s: float) -> frozenset[int]:
        """Return ordinals of members that run, by the kubelet's last report, and did not answer for some time."""
        pods = [(ordinal, self.pod(ordinal)) for ordinal in range(self.size) if ordinal not in self.answers]
        return frozenset(
            ordinal
            for ordinal, pod in pods
            if pod is not None and pod.is_running and not pod.works
            if pod.unready_since and now_s - seconds_of(pod.unready_since) >= SILENT_S
        )

    def roles(self) -> dict[str, str]:
        """Return the wanted role label of each pod."""
        return {pod: "master" if pod == self.master_pod else "slave" for pod in self.pods}


_ORDINALS_MAX = 5


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The present state of one cluster: its groups, name servers, sets and volumes."""

    cluster: BrokerCluster
    groups: Sequence[GroupSeen]
    nameservers: Sequence[Pod] = ()
    door_pods: Mapping[str, Sequence[Pod]] = field(default_factory=dict)  # by component
    doors: Mapping[str, DoorSeen] = field(default_factory=dict)  # by component; those of the specification
    missing_secrets: Sequence[str] = ()  # that images should be pulled with
    sets: Mapping[str, Document] = field(default_factory=dict)  # by name, as the API server has them
    volumes: Sequence[str] = ()  # what differs from spec.brokers.storage, one text for each volume
    unapplied: Sequence[str] = ()  # objects that differ from the specification while it is paused
    unseen: frozenset[str] = frozenset()  # kinds whose list failed: nothing of them is known

    @property
    def nameservers_ready(self) -> int:
        """Return how many name servers are ready."""
        return sum(pod.works for pod in self.nameservers)

    def doors_ready(self, kind: DoorKind) -> int:
        """Return how many pods of this kind of door are ready."""
        return sum(pod.works for pod in self.door_pods.get(kind.component, ()))

    @property
    def image(self) -> str:
        """Return the images that pods run, as their sets name them, that of most pods first; empty without pods."""
        pods = [*self.nameservers, *(pod for group in self.groups for pod in group.pods.values())]
        counted = Counter(name for pod in pods if (name := pod.asked_image or pod.image))
        return ", ".join(name for name, _ in sorted(counted.items(), key=lambda each: (-each[1], each[0])))


def replicas_seen(document: Mapping[str, Any] | None) -> int | None:
    """Return how many replicas a StatefulSet should have; None without a set."""
    return None if document is None else int(document["spec"]["replicas"])


def roll_seen(document: Mapping[str, Any] | None) -> str:
    """Return the value of manual-rolling-update at a StatefulSet."""
    return "" if document is None else str(document["metadata"].get("annotations", {}).get(ROLL, ""))[:63]


def revision_seen(document: Mapping[str, Any] | None) -> str:
    """Return the revision that the pods of a StatefulSet should have; empty while its controller is behind."""
    if document is None:
        return ""
    status = document.get("status", {})
    if status.get("observedGeneration", -1) < document["metadata"].get("generation", 0):
        return ""
    return str(status.get("updateRevision", ""))


def register_seen(document: Mapping[str, Any] | None) -> Register | None:
    """Read a Lease; None when there is none, and when it is invalid (the failover loop reports that)."""
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
