"""A BrokerCluster as a value: what a person asked for, read from the object that the API server keeps.

The server has checked types, bounds and rules and has put the defaults in (`schema`); so what is missing or ill-typed
here is an object that no server of ours let in, and a ValueError.  Names of what belongs to a cluster are made here and
nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

GROUP, VERSION, KIND, PLURAL = "gantrymq.io", "v1alpha1", "BrokerCluster", "brokerclusters"
LABEL_CLUSTER, LABEL_COMPONENT = f"{GROUP}/cluster", f"{GROUP}/component"
LABEL_GROUP, LABEL_ROLE = f"{GROUP}/group", f"{GROUP}/role"

Document = dict[str, Any]


class Profile(StrEnum):
    """When a message is acknowledged."""

    DURABLE = "durable"
    REPLICATED = "replicated"
    FAST = "fast"


class Promise(NamedTuple):
    """What a profile means to a broker."""

    flush: str
    role: str
    min_in_sync: int


PROMISES = {
    Profile.DURABLE: Promise("SYNC_FLUSH", "SYNC_MASTER", 2),
    Profile.REPLICATED: Promise("ASYNC_FLUSH", "SYNC_MASTER", 2),
    Profile.FAST: Promise("ASYNC_FLUSH", "ASYNC_MASTER", 1),
}


class Key(NamedTuple):
    """Which cluster."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Brokers:
    """`spec.brokers`."""

    groups: int
    replicas: int
    profile: Profile
    timers: str
    storage_size: str
    storage_class: str  # empty: the cluster's default
    anti_affinity: str
    config: Mapping[str, str]
    resources: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BrokerCluster:
    """See the module."""

    key: Key
    uid: str
    generation: int
    is_going: bool  # a deletionTimestamp: nothing is made any more
    image: str  # empty: the operator's own choice
    nameservers: int
    nameserver_resources: Mapping[str, Any]
    brokers: Brokers
    status: Mapping[str, Any]

    def groups(self) -> Iterator[Group]:
        """b0, b1, ..."""
        return (Group(self, number) for number in range(self.brokers.groups))

    @property
    def nameserver(self) -> str:
        """The StatefulSet and headless Service of the name servers."""
        return f"{self.key.name}-ns"

    @property
    def secret(self) -> str:
        """What members of the groups prove to each other."""
        return f"{self.key.name}-ha"

    @property
    def nameserver_addresses(self) -> list[str]:
        """One name each, the same for the cluster's life."""
        names = (f"{self.nameserver}-{number}" for number in range(self.nameservers))
        return [f"{each}.{self.nameserver}.{self.key.namespace}.svc:9876" for each in names]


@dataclass(frozen=True, slots=True)
class Group:
    """One group of a cluster: a StatefulSet, a Lease, a service account, all with one name."""

    cluster: BrokerCluster
    number: int

    @property
    def short(self) -> str:
        """Within the cluster: b0."""
        return f"b{self.number}"

    @property
    def name(self) -> str:
        """Everywhere: also what RocketMQ calls brokerName."""
        return f"{self.cluster.key.name}-{self.short}"

    def pod(self, ordinal: int) -> str:
        """Also the name of the member's own Service."""
        return f"{self.name}-{ordinal}"

    @property
    def pods(self) -> list[str]:
        """By ordinal."""
        return [self.pod(ordinal) for ordinal in range(self.cluster.brokers.replicas)]


def read(document: Mapping[str, Any]) -> BrokerCluster:
    """The value of an object; ValueError for one that is none."""
    try:
        about, spec = document["metadata"], document["spec"]
        brokers, names = spec["brokers"], spec["nameserver"]
        return BrokerCluster(
            key=Key(about["namespace"], about["name"]),
            uid=about["uid"],
            generation=int(about["generation"]),
            is_going="deletionTimestamp" in about,
            image=spec["image"],
            nameservers=int(names["replicas"]),
            nameserver_resources=names["resources"],
            brokers=Brokers(
                groups=int(brokers["groups"]),
                replicas=int(brokers["replicasPerGroup"]),
                profile=Profile(brokers["profile"]),
                timers=brokers["failover"]["timers"],
                storage_size=brokers["storage"]["size"],
                storage_class=brokers["storage"]["storageClassName"],
                anti_affinity=brokers["antiAffinity"],
                config=brokers["config"],
                resources=brokers["resources"],
            ),
            status=document.get("status", {}),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"this is no {KIND} of {GROUP}/{VERSION}: {error!r}; install the definition that came with the operator"
        ) from error
