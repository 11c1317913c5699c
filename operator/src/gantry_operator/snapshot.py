"""What is, as values: groups by their register, their pods and what members say.  Nothing here asks anybody.

The register is the truth about who leads; a pod's readiness only says whether it serves; what a member answers is for
people, and for what is asked of it next.  No decision about failover is made on any of this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gantry.replication.members import SyncSet, parse_set
from gantry.replication.record import Phase, Store, parse_holder, parse_stores
from gantry_operator.api.brokercluster import LABEL_ROLE, BrokerCluster, Document, Group
from gantry_operator.api.terms import Terms, parse_terms
from gantry_operator.api.wishes import RECLONE, ROLL

_PREFIX = "gantrymq.io/"
_REVISION = "controller-revision-hash"
_PULLS = frozenset({"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
# Whoever starts says nothing for a while.
SILENT_S = 60.0
_TIME = "%Y-%m-%dT%H:%M:%S"


@dataclass(frozen=True, slots=True)
class Pod:
    """One member's."""

    name: str
    uid: str
    is_ready: bool  # and not on its way out
    is_going: bool  # somebody deleted it, and its process has its time to end
    role: str  # as its label says
    revision: str  # of the template that it was made from
    terms: Terms | None = None
    is_marked: bool = False  # a person wants it replaced
    reclone: str = ""  # the uid that a person wrote there
    node: str = ""
    is_running: bool = False  # as the kubelet said last
    unready_since: str = ""  # empty: it is ready, or nobody knows
    trouble: str = ""  # "image", "volume", "place", "crash": it does not come up by itself
    trouble_since: str = ""


@dataclass(frozen=True, slots=True)
class Register:
    """A Lease, as far as people are told of it; no decision is made on this reading."""

    phase: str
    epoch: int
    master: int | None  # ordinal
    in_sync: SyncSet
    cluster_uid: str = ""
    stores: Mapping[int, Store] = field(default_factory=dict)
    renewed_s: float = 0.0  # wall clock of whoever wrote it
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
        return pod is not None and pod.is_ready

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
            if pod is not None and pod.is_running and not pod.is_ready
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

    @property
    def nameservers_ready(self) -> int:
        """How many name servers serve."""
        return sum(pod.is_ready for pod in self.nameservers)


def pod_seen(document: Mapping[str, Any]) -> Pod:
    """A pod's document as a value."""
    about, status = document["metadata"], document.get("status", {})
    conditions = status.get("conditions", [])
    serves = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    is_going = "deletionTimestamp" in about
    labels, annotations = about.get("labels", {}), about.get("annotations", {})
    containers = status.get("containerStatuses", [])
    trouble, since = _trouble(conditions, containers)
    unready = [each for each in conditions if each["type"] == "Ready" and each["status"] != "True"]
    return Pod(
        about["name"],
        about["uid"],
        serves and not is_going,
        is_going,
        labels.get(LABEL_ROLE, ""),
        labels.get(_REVISION, ""),
        parse_terms(annotations.get(f"{_PREFIX}terms", "")),
        bool(annotations.get(ROLL)),
        annotations.get(RECLONE, ""),
        document.get("spec", {}).get("nodeName", ""),
        any("running" in each.get("state", {}) for each in containers),
        next((each.get("lastTransitionTime") or "" for each in unready), ""),
        trouble,
        since,
    )


def _trouble(conditions: Sequence[Mapping[str, Any]], containers: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    for each in containers:
        reason = each.get("state", {}).get("waiting", {}).get("reason", "")
        if reason in _PULLS:
            return "image", ""
        if reason == "CrashLoopBackOff":
            return "crash", ""
    for each in conditions:
        if each["type"] == "PodScheduled" and each["status"] == "False":
            is_volume = "PersistentVolumeClaim" in each.get("message", "")
            return "volume" if is_volume else "place", each.get("lastTransitionTime") or ""
    return "", ""


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


def seconds_of(text: str) -> float:
    """Of a time as Kubernetes writes it; 0 for none."""
    try:
        return datetime.strptime(text[:19], _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
