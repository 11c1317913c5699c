"""What a local cluster consists of, and where each part listens: values, made once and kept in the cluster's folder.

Members have addresses of their own and everywhere the same ports, so that a port of a member that is down can be
taken by nobody's outgoing connection, and that links between two members can be told from each other.

    namespaces   198.18.N.0/24 on a bridge; each member has a network namespace, and its cable can be pulled
    proxy        127.H.x.y: a member listens at 127.H.(64 + group).ordinal and advertises 127.H.(1 + group).ordinal,
                 where a process passes connections on until it is told not to; each way from one member to another,
                 and to the name server, is an address of its own
    direct       127.H.x.y without anything in between: nothing can be cut

The register of a group is a file.  A member reaches it through a link in its own folder, which is taken away while the
member is cut off: a cable that is pulled takes the register with it.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gantry.broker.settings.profiles import PROFILES
from gantry.errors import ConfigError
from gantry.local.cuts import OUTSIDE, Way

GROUPS_MAX = 26
REPLICAS_MAX = 8
NAMES, WIRES, COORDINATOR = "nameserver", "wires", "coordinator"


class Links(StrEnum):
    """How members reach each other."""

    NAMESPACES = "namespaces"
    PROXY = "proxy"
    DIRECT = "direct"




class Who(NamedTuple):
    """One member, by the number of its group and its ordinal."""

    group: int
    ordinal: int

    @property
    def group_name(self) -> str:
        """`broker-a`, as RocketMQ's examples call them."""
        return f"broker-{string.ascii_lowercase[self.group]}"

    @property
    def name(self) -> str:
        """Of its folder, its log and its process."""
        return f"{self.group_name}-{self.ordinal}"


class Ports(NamedTuple):
    """The same for every member."""

    broker: int = 10911
    ha: int = 10912
    ha_api: int = 9405
    http: int = 9404
    names: int = 9876

    def shifted(self, by: int) -> Ports:
        """All of them, so much higher."""
        return Ports(*(port + by for port in self))


class Wire(NamedTuple):
    """Where a proxy listens and where it passes on to, and whom it joins: who connects, and to whom."""

    listen: tuple[str, int]
    target: tuple[str, int]
    way: Way


@dataclass(frozen=True, slots=True)
class Layout:
    """See the module; `net` is N or H."""

    uid: str
    groups: int
    replicas: int
    profile: str
    timers: str
    links: Links
    net: int
    ports: Ports
    settings: Mapping[str, str]  # keys of the configuration that every member gets besides

    def __post_init__(self) -> None:
        if not 1 <= self.groups <= GROUPS_MAX or not 2 <= self.replicas <= REPLICAS_MAX:
            raise ConfigError(
                f"{self.groups} groups of {self.replicas}: expected 1 to {GROUPS_MAX} groups of 2 to {REPLICAS_MAX} "
                "members; gantry standalone is one alone"
            )

    def members(self) -> Iterator[Who]:
        """Every member, group by group."""
        return (Who(group, ordinal) for group in range(self.groups) for ordinal in range(self.replicas))

    @property
    def short(self) -> str:
        """For names of the system that must be short."""
        return self.uid[:6]

    @property
    def host(self) -> str:
        """The address of what runs outside of every member's network."""
        return f"198.18.{self.net}.1" if self.links is Links.NAMESPACES else f"127.{self.net}.250.1"

    @property
    def name_server(self) -> str:
        """HOST:PORT, for clients."""
        return f"{self.host}:{self.ports.names}"

    def address(self, who: Who) -> str:
        """What a member advertises."""
        if self.links is Links.NAMESPACES:
            return f"198.18.{self.net}.{10 + who.group * REPLICAS_MAX + who.ordinal}"
        return f"127.{self.net}.{1 + who.group}.{1 + who.ordinal}"

    def bound(self, who: Who) -> str:
        """Where a member itself listens."""
        if self.links is Links.PROXY:
            return f"127.{self.net}.{64 + who.group}.{1 + who.ordinal}"
        return self.address(who)

    def way(self, start: Who, end: Who) -> str:
        """Where a member finds the replication port of another of its group."""
        if self.links is Links.PROXY and start != end:
            pair = 1 + start.ordinal * REPLICAS_MAX + end.ordinal
            return f"127.{self.net}.{128 + start.group}.{pair}:{self.ports.ha}"
        return f"{self.address(end)}:{self.ports.ha}"

    def names_for(self, who: Who) -> str:
        """Where a member finds the name server."""
        if self.links is Links.PROXY:
            return f"127.{self.net}.{192 + who.group}.{1 + who.ordinal}:{self.ports.names}"
        return self.name_server

    def wires(self) -> Iterator[Wire]:
        """What a proxy passes on."""
        if self.links is not Links.PROXY:
            return
        ports = self.ports
        for who in self.members():
            for port in (ports.broker, ports.ha_api, ports.http):
                yield Wire((self.address(who), port), (self.bound(who), port), Way(OUTSIDE, who.name))
            yield Wire(_split(self.names_for(who)), (self.host, ports.names), Way(who.name, OUTSIDE))
            for ordinal in range(self.replicas):
                other = Who(who.group, ordinal)
                if other != who:
                    way = Way(who.name, other.name)
                    yield Wire(_split(self.way(who, other)), (self.bound(other), ports.ha), way)

    def listeners(self) -> Iterator[tuple[str, int]]:
        """Everything that has to be free on this machine."""
        yield self.host, self.ports.names
        for wire in self.wires():
            yield wire.listen
        if self.links is not Links.NAMESPACES:
            for who in self.members():
                yield from ((self.bound(who), port) for port in self.ports[:4])

    def to_document(self) -> dict[str, object]:
        """As JSON."""
        return {
            "uid": self.uid,
            "groups": self.groups,
            "replicas": self.replicas,
            "profile": self.profile,
            "timers": self.timers,
            "links": self.links.value,
            "net": self.net,
            "ports": list(self.ports),
            "settings": dict(self.settings),
        }


def member_config(layout: Layout, who: Who, folder: str, secret_file: str) -> dict[str, object]:
    """The broker's configuration; sizes are those of `gantry standalone`.  `folder` is the member's."""
    from gantry.failover.timers import TIMERS

    profile = PROFILES[layout.profile]
    ports = layout.ports
    config: dict[str, object] = {
        "cluster": "local",
        "name": who.group_name,
        "role": profile.role,
        "name_servers": layout.names_for(who),
        "network.bind": layout.bound(who),
        "network.advertise": layout.address(who),
        "network.port": ports.broker,
        "network.vip_port": -2,
        "network.ha_port": ports.ha,
        "network.ha_api_port": ports.ha_api,
        "network.http_port": ports.http,
        "store.root": f"{folder}/store",
        "store.flush": profile.flush,
        "store.segment_bytes": 64 << 20,
        "store.index_slots": 100_000,
        "store.index_entries": 400_000,
        "replication.secret_file": secret_file,
        "replication.register": f"file:{folder}/reach/{who.group_name}.json",
        "replication.ordinal": who.ordinal,
        "replication.members": ",".join(layout.way(who, Who(who.group, each)) for each in range(layout.replicas)),
        "replication.renew_every_s": TIMERS[layout.timers].renew_every_s,
        "replication.min_in_sync": profile.min_in_sync,
    }
    return config | dict(layout.settings)


def coordinator_config(layout: Layout, registers: str, secret_file: str) -> dict[str, object]:
    """What `gantry coordinator --config` is told."""
    profile = PROFILES[layout.profile]
    groups: dict[str, object] = {}
    for number in range(layout.groups):
        members = [Who(number, ordinal) for ordinal in range(layout.replicas)]
        groups[members[0].group_name] = {
            "register": f"file:{registers}/{members[0].group_name}.json",
            "members": [f"{layout.address(each)}:{layout.ports.ha_api}" for each in members],
        }
    return {
        "secret-file": secret_file,
        "cluster-uid": layout.uid,
        "local-uid": layout.uid,
        "failover-timers": layout.timers,
        "role": profile.role,
        "min-in-sync": profile.min_in_sync,
        "groups": groups,
    }


def who_is(layout: Layout, text: str) -> Who:
    """`broker-a/1` or `broker-a-1`; ConfigError naming what there is."""
    for who in layout.members():
        if text in (who.name, f"{who.group_name}/{who.ordinal}"):
            return who
    raise ConfigError(f"{text}: no such member; there are {', '.join(who.name for who in layout.members())}")


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
