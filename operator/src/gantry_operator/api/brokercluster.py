"""A BrokerCluster as a value, read from the object that the API server stores.

The server has checked types, bounds and rules and has filled in the defaults (`schema`).  So a missing or ill-typed
field means that the object was stored under another definition, and is a ValueError.  A profile and the fields that
override it become one `Promise` here, and times become numbers.  The names of all objects of a cluster are made only
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from gantry.replication.timers import TIMERS, Timers, derive_timers
from gantry_operator.api.doorspec import Door, DoorKind, Proxy, Queues, read_proxy, read_queues
from gantry_operator.api.wishes import RequestedActions, read_wishes

GROUP, VERSION, KIND, PLURAL = "gantrymq.io", "v1alpha1", "BrokerCluster", "brokerclusters"
LABEL_CLUSTER, LABEL_COMPONENT = f"{GROUP}/cluster", f"{GROUP}/component"
LABEL_GROUP, LABEL_ROLE = f"{GROUP}/group", f"{GROUP}/role"
FINALIZER = f"{GROUP}/claims"  # of a cluster whose volumes go with it
FIELD_MANAGER = "gantry-operator"  # of everything that is applied
CLIENT = (f"{GROUP}/client", "yes")  # label of pods that may connect

Document = dict[str, Any]


class Profile(StrEnum):
    """When a message is acknowledged."""

    DURABLE = "durable"
    REPLICATED = "replicated"
    FAST = "fast"


class Promise(NamedTuple):
    """What an acknowledgement means, in terms of the broker's configuration."""

    flush: str
    role: str
    min_in_sync: int

    @property
    def is_sync(self) -> bool:
        """Return whether producers wait for slaves (SYNC_MASTER)."""
        return self.role == SYNC_MASTER


SYNC_MASTER, ASYNC_MASTER = "SYNC_MASTER", "ASYNC_MASTER"
PROMISES = {
    Profile.DURABLE: Promise("SYNC_FLUSH", SYNC_MASTER, 2),
    Profile.REPLICATED: Promise("ASYNC_FLUSH", SYNC_MASTER, 2),
    Profile.FAST: Promise("ASYNC_FLUSH", ASYNC_MASTER, 1),
}


class Key(NamedTuple):
    """Namespace and name of a cluster."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Failover:
    """The failover settings of a cluster (`spec.brokers.failover`)."""

    timers: Timers
    is_automatic: bool
    has_fast_path: bool
    may_be_unclean: bool
    after_total_power_loss: bool


@dataclass(frozen=True, slots=True)
class Storage:
    """The volumes of members (`spec.brokers.storage`)."""

    size: str
    storage_class: str  # empty: the cluster's default
    access_mode: str


@dataclass(frozen=True, slots=True)
class Brokers:
    """The settings of a cluster's brokers (`spec.brokers`); times in seconds."""

    groups: int
    replicas: int
    promise: Promise
    times: Mapping[str, float]  # keys of broker.yaml
    failover: Failover
    handover_s: float
    storage: Storage
    anti_affinity: str
    pod: Mapping[str, Any]
    config: Mapping[str, str]
    resources: Mapping[str, Any]


class Held(NamedTuple):
    """Why an image is not used yet: a condition's reason and message."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Image:
    """The image of brokers and name servers, and the group that owns their volumes."""

    name: str  # empty: the operator's own choice
    policy: str
    secrets: Sequence[str]
    volume_group: int | None = None  # owns their volumes, as the operator was told; None: the platform assigns one
    held: Held | None = None  # why `name` is not the operator's choice, where it should be


@dataclass(frozen=True, slots=True)
class Guard:
    """Who may connect to a cluster (`spec.networkPolicy`)."""

    clients: str  # Labelled, Any, Unguarded
    metrics_namespaces: Sequence[str]  # empty: pods of all namespaces may read metrics


@dataclass(frozen=True, slots=True)
class BrokerCluster:
    """The specification and annotations of a BrokerCluster, checked and typed; `status` as the API server has it."""

    key: Key
    uid: str
    generation: int
    is_going: bool  # it has a deletionTimestamp: nothing is made any more
    has_finalizer: bool
    image: Image
    nameservers: int
    nameserver_pod: Mapping[str, Any]
    nameserver_resources: Mapping[str, Any]
    brokers: Brokers
    proxy: Proxy | None  # None: it has no proxies
    queues: Queues | None  # None: it has no servers of HTTP queues
    drops_claims: bool
    guard: Guard
    wishes: RequestedActions
    status: Mapping[str, Any]

    def groups(self) -> Iterator[Group]:
        """Yield the wanted groups, in the order b0, b1, ..."""
        return (Group(self, number) for number in range(self.brokers.groups))

    @property
    def nameserver(self) -> str:
        """Return the name of the StatefulSet and of the headless Service of the name servers."""
        return f"{self.key.name}-ns"

    @property
    def secret(self) -> str:
        """Return the name of the Secret with the key of replication links."""
        return f"{self.key.name}-ha"

    @property
    def doors(self) -> list[Door]:
        """Return the settings that its doors have in common."""
        return [each.door for each in (self.proxy, self.queues) if each is not None]

    def door(self, kind: DoorKind) -> str:
        """Return the name of the Deployment and of the Service of this kind of door."""
        return f"{self.key.name}-{kind.component}"

    @property
    def handle_secret(self) -> str:
        """Return the name of the Secret with the keys that sign receipt handles, those of all doors."""
        return f"{self.key.name}-proxy-keys"

    @property
    def nameserver_addresses(self) -> list[str]:
        """Return HOST:PORT of each name server; host names never change while the cluster exists."""
        names = (f"{self.nameserver}-{number}" for number in range(self.nameservers))
        return [f"{each}.{self.nameserver}.{self.key.namespace}.svc:9876" for each in names]


@dataclass(frozen=True, slots=True)
class Group:
    """One broker group of a cluster: a StatefulSet, a Lease, a service account, all with one name."""

    cluster: BrokerCluster
    number: int

    @property
    def short(self) -> str:
        """Return the group's name within the cluster, such as b0."""
        return f"b{self.number}"

    @property
    def name(self) -> str:
        """Return the group's full name, which is also RocketMQ's brokerName."""
        return f"{self.cluster.key.name}-{self.short}"

    def pod(self, ordinal: int) -> str:
        """Return the name of a member's pod, which is also that of its own Service."""
        return f"{self.name}-{ordinal}"

    def claim(self, ordinal: int) -> str:
        """Return the name of a member's volume claim."""
        return f"store-{self.pod(ordinal)}"

    @property
    def pods(self) -> list[str]:
        """Return the names of the wanted pods, by ordinal."""
        return [self.pod(ordinal) for ordinal in range(self.cluster.brokers.replicas)]


def read(document: Mapping[str, Any]) -> BrokerCluster:
    """Read an object of the API server; ValueError when it is not valid."""
    try:
        about, spec = document["metadata"], document["spec"]
        names = spec["nameserver"]
        return BrokerCluster(
            key=Key(about["namespace"], about["name"]),
            uid=about["uid"],
            generation=int(about["generation"]),
            is_going="deletionTimestamp" in about,
            has_finalizer=FINALIZER in about.get("finalizers", []),
            image=Image(spec["image"], spec["imagePullPolicy"], tuple(spec["imagePullSecrets"])),
            nameservers=int(names["replicas"]),
            nameserver_pod=names["podTemplate"],
            nameserver_resources=names["resources"],
            brokers=_brokers(spec["brokers"]),
            proxy=read_proxy(spec.get("proxy")),
            queues=read_queues(spec.get("queues")),
            drops_claims=spec["deletionPolicy"] == "Delete",
            guard=Guard(spec["networkPolicy"]["clients"], tuple(spec["networkPolicy"]["metricsNamespaces"])),
            wishes=read_wishes(about.get("annotations", {})),
            status=document.get("status", {}),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"this is no {KIND} of {GROUP}/{VERSION}: {error!r}; install the definition that came with the operator"
        ) from error


def _brokers(spec: Mapping[str, Any]) -> Brokers:
    storage = spec["storage"]
    return Brokers(
        groups=int(spec["groups"]),
        replicas=int(spec["replicasPerGroup"]),
        promise=_promise(spec),
        times=_times(spec),
        failover=_failover(spec["failover"]),
        handover_s=seconds(spec["disruption"]["handoverTimeout"]),
        storage=Storage(storage["size"], storage["storageClassName"], storage["accessMode"]),
        anti_affinity=spec["antiAffinity"],
        pod=spec["podTemplate"],
        config=spec["config"],
        resources=spec["resources"],
    )


def _promise(spec: Mapping[str, Any]) -> Promise:
    """Return the profile's promise, with the explicit fields in place of the profile's."""
    profile, given = PROMISES[Profile(spec["profile"])], spec["replication"]
    flush = f"{spec['flush']['mode']}_FLUSH" if "mode" in spec["flush"] else profile.flush
    role = given.get("mode", profile.role)
    return Promise(flush, role, int(given.get("minInSync", 2 if role == SYNC_MASTER else 1)))


def _times(spec: Mapping[str, Any]) -> dict[str, float]:
    given = spec["replication"]
    times = {
        "replication.ack_timeout_s": seconds(given["ackTimeout"]),
    }
    if "maxLag" in given:
        times["replication.max_lag_s"] = seconds(given["maxLag"])
    if "interval" in spec["flush"]:
        times["store.flush_interval_ms"] = round(seconds(spec["flush"]["interval"]) * 1000)
    return times


def _failover(spec: Mapping[str, Any]) -> Failover:
    timers = TIMERS[spec["timers"]]
    if "suspectAfter" in spec or "leaseDuration" in spec:
        suspect_s = seconds(spec["suspectAfter"]) if "suspectAfter" in spec else timers.suspect_after_s
        lease_s = seconds(spec["leaseDuration"]) if "leaseDuration" in spec else timers.lease_s
        timers = derive_timers(suspect_s, round(lease_s))
    return Failover(
        timers,
        spec["mode"] == "Automatic",
        spec["fastPath"] == "WhenSafe",
        spec["unclean"] == "OnRequest",
        spec["afterTotalPowerLoss"] == "Automatic",
    )


def seconds(text: str) -> float:
    """Return the seconds of a time such as `500ms`, `15s` or `2m`; ValueError for any other text."""
    for unit, factor in (("ms", 0.001), ("s", 1.0), ("m", 60.0)):
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * factor
    raise ValueError(f"{text!r}: expected a time such as 500ms, 15s or 2m")
