"""A broker's configuration: one frozen tree of all keys.

The keys are declared here and in `sections`; rules between several keys are in `keyrules`.  `loading` makes the tree
from its sources.  It does not change afterwards, except for the keys in `HOT`, which UPDATE_BROKER_CONFIG may replace
by a new tree (see `live`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from gantry.broker.settings import sections
from gantry.broker.settings.popsection import PopConfig
from gantry.broker.settings.profiles import Profile
from gantry.broker.settings.standalonekeys import StandaloneConfig
from gantry.model.keys import choice, number, one_of, several, table, words
from gantry.replication.members import MEMBERS_MAX

_NAME = r"[^\s/:;,@\x00-\x1f\x7f]+"
_NAME_FORM = "a name of 1 to 100 characters without spaces and / : ; , @"
_NAME_CHARACTERS_MAX = 100  # it is also a topic, which has 127
_NAME_SERVERS_MAX = 64


class Role(enum.StrEnum):
    """The role of a broker in its group; the values are RocketMQ's."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The broker's name, role, name servers and permissions."""

    cluster: str = words("DefaultCluster", "Name of the cluster.", _NAME, _NAME_FORM, low=1, high=_NAME_CHARACTERS_MAX)
    name: str = words(
        "broker-a", "Name of the broker's group; the same on a master and its slaves.", _NAME, _NAME_FORM,
        low=1, high=_NAME_CHARACTERS_MAX,
    )  # fmt: skip
    profile: Profile = choice(
        Profile.NONE,
        "When a message is acknowledged, in one word for `store.flush`, `role` and `replication.min_in_sync`: "
        "`durable` (on two disks), `replicated` (in two machines' memory) or `fast`. Each of those keys is stronger.",
    )
    id: int = number(
        0,
        0,
        MEMBERS_MAX,
        "",
        f"Number in the group: 0 for the master, each slave its own from 1 to {MEMBERS_MAX - 1}. Not set with a "
        "register: there a slave's is `replication.ordinal` + 1.",
    )
    role: Role = choice(
        Role.ASYNC_MASTER, "SYNC_MASTER waits for slaves before it acknowledges a message; ASYNC_MASTER does not."
    )
    name_servers: tuple[str, ...] = several(
        (), 0, _NAME_SERVERS_MAX, sections.HOST_PORT, "HOST:PORT", "Name servers to register with."
    )
    permission: int = one_of(
        6,
        {2: "write", 4: "read", 6: "both"},
        "What clients may do; name servers are told.",
        is_hot=True,
    )
    network: sections.NetworkConfig = field(default_factory=sections.NetworkConfig)
    store: sections.StoreConfig = field(default_factory=sections.StoreConfig)
    messages: sections.MessagesConfig = field(default_factory=sections.MessagesConfig)
    topics: sections.TopicsConfig = field(default_factory=sections.TopicsConfig)
    pull: sections.PullConfig = field(default_factory=sections.PullConfig)
    clients: sections.ClientsConfig = field(default_factory=sections.ClientsConfig)
    transactions: sections.TransactionsConfig = field(default_factory=sections.TransactionsConfig)
    delays: sections.DelaysConfig = field(default_factory=sections.DelaysConfig)
    pop: PopConfig = field(default_factory=PopConfig)
    metrics: sections.MetricsConfig = field(default_factory=sections.MetricsConfig)
    registration: sections.RegistrationConfig = field(default_factory=sections.RegistrationConfig)
    replication: sections.ReplicationConfig = field(default_factory=sections.ReplicationConfig)
    standalone: StandaloneConfig = field(default_factory=StandaloneConfig)


KEYS = table(BrokerConfig)
"""Every key by its dotted name."""

HOT = frozenset(name for name, entry in KEYS.items() if entry.key.is_hot)
"""Keys that may change while the broker runs."""
