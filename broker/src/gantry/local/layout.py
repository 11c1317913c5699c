"""The layout of a local cluster: its members and the addresses of each; made once and kept in the cluster's folder.

Each member has its own address, and all have the same ports.  So no outgoing connection can take the port of a member
that is down, and links between members can be distinguished.

    namespaces   198.18.N.0/24 on a bridge; each member has a network namespace whose interface can be taken down
    proxy        127.H.x.y: a member listens at 127.H.(64 + group).ordinal and advertises 127.H.(1 + group).ordinal,
                 where a proxy process passes connections on; each direction between two members, and to the name
                 server, has its own address, so that each can be cut
    direct       127.H.x.y without a proxy: nothing can be cut

The register of a group is a file.  A member reaches it through a link in its own folder, which is redirected while the
member is cut off, so that it cannot reach the register either.
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
        """The group's name, like `broker-a` in RocketMQ's examples."""
        return f"broker-{string.ascii_lowercase[self.group]}"

    @property
    def name(self) -> str:
        """The name of the member's folder, log and process, like `broker-a-1`."""
        return f"{self.group_name}-{self.ordinal}"


class Ports(NamedTuple):
    """The ports, the same for every member."""

    broker: int = 10911
    ha: int = 10912
    ha_api: int = 9405
    http: int = 9404
    names: int = 9876

    def shifted(self, by: int) -> Ports:
        """Return the ports, each increased by `by`."""
        return Ports(*(port + by for port in self))


class Wire(NamedTuple):
    """An address where the proxy listens, the address it connects to, and the direction between members that
    this is.
    """

    listen: tuple[str, int]
    target: tuple[str, int]
    way: Way


@dataclass(frozen=True, slots=True)
class Layout:
    """Size, addresses and settings of a cluster; `net` is N or H. ConfigError for an impossible size."""

    uid: str
    groups: int
    replicas: int
    profile: str
    timers: str
    links: Links
    net: int
    ports: Ports
    settings: Mapping[str, str]  # further configuration keys of every member

    def __post_init__(self) -> None:
        if not 1 <= self.groups <= GROUPS_MAX or not 2 <= self.replicas <= REPLICAS_MAX:
            raise ConfigError(
                f"{self.groups} groups of {self.replicas}: expected 1 to {GROUPS_MAX} groups of 2 to {REPLICAS_MAX} "
                "members; gantry standalone is one alone"
            )

    def members(self) -> Iterator[Who]:
        """Return every member, group by group."""
        return (Who(group, ordinal) for group in range(self.groups) for ordinal in range(self.replicas))

    @property
    def short(self) -> str:
        """The first digits of the uid, for names of the system that must be short."""
        return self.uid[:6]

    @property
    def host(self) -> str:
        """The address of the processes outside the members' networks."""
        return f"198.18.{self.net}.1" if self.links is Links.NAMESPACES else f"127.{self.net}.250.1"

    @property
    def name_server(self) -> str:
        """HOST:PORT of the name server, for clients."""
        return f"{self.host}:{self.ports.names}"

    def address(self, who: Who) -> str:
        """Return the address that a member advertises."""
        if self.links is Links.NAMESPACES:
            return f"198.18.{self.net}.{10 + who.group * REPLICAS_MAX + who.ordinal}"
        return f"127.{self.net}.{1 + who.group}.{1 + who.ordinal}"

    def bound(self, who: Who) -> str:
        """Return the address that a member listens on."""
        if self.links is Links.PROXY:
            return f"127.{self.net}.{64 + who.group}.{1 + who.ordinal}"
        return self.address(who)

    def way(self, start: Who, end: Who) -> str:
        """Return HOST:PORT at which `start` reaches the replication port of `end`, of the same group."""
        if self.links is Links.PROXY and start != end:
            pair = 1 + start.ordinal * REPLICAS_MAX + end.ordinal
            return f"127.{self.net}.{128 + start.group}.{pair}:{self.ports.ha}"
        return f"{self.address(end)}:{self.ports.ha}"

    def names_for(self, who: Who) -> str:
        """Return HOST:PORT at which a member reaches the name server."""
        if self.links is Links.PROXY:
            return f"127.{self.net}.{192 + who.group}.{1 + who.ordinal}:{self.ports.names}"
        return self.name_server

    def wires(self) -> Iterator[Wire]:
        """Yield every address of the proxy; none unless `links` is proxy."""
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
        """Yield every (host, port) that has to be free on this machine."""
        yield self.host, self.ports.names
        for wire in self.wires():
            yield wire.listen
        if self.links is not Links.NAMESPACES:
            for who in self.members():
                yield from ((self.bound(who), port) for port in self.ports[:4])

    def to_document(self) -> dict[str, object]:
        """Return the layout as a JSON object."""
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
    """Return the broker's configuration by dotted key; sizes are those of `gantry standalone`. `folder` is the
    member's.
    """
    from gantry.replication.timers import TIMERS

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
    """Return the configuration of `gantry coordinator --config`; the members tell it their terms."""
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
        "groups": groups,
    }


def who_is(layout: Layout, text: str) -> Who:
    """Return the member of a text like `broker-a/1` or `broker-a-1`; ConfigError when there is none."""
    for who in layout.members():
        if text in (who.name, f"{who.group_name}/{who.ordinal}"):
            return who
    raise ConfigError(f"{text}: no such member; there are {', '.join(who.name for who in layout.members())}")


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
