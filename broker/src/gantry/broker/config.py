"""What can be set about a broker: one frozen tree.

Where a value comes from, weakest first: the default here, the file (YAML, or RocketMQ's broker.conf), a
variable `GANTRY_<SECTION>_<KEY>`, a flag.  `load` puts them together; after that the tree does not change, but
for the keys in `HOT`, which UPDATE_BROKER_CONFIG may replace (as a new tree, see `broker.live`).

Defaults are RocketMQ's where it has one.  Every limit of the process stands here: a queue, table or wait
without one does not exist.  A number is in the unit that ends its name; a `_bytes` key also takes KiB, MiB and
GiB.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gantry.broker import brokerconf
from gantry.broker.sources import Source, build, from_environment, from_flags, from_yaml
from gantry.errors import ConfigError
from gantry.replication.handshake import SECRET_BYTES_MIN
from gantry.replication.members import MEMBERS_MAX
from gantry.schedule import levels
from gantry.store.settings import Flush
from gantry.transport.addresses import split_address

GIB = 1 << 30
MIB = 1 << 20
RECORD_OVERHEAD_BYTES = 64 << 10  # an encoded record is longer than its body; RocketMQ allows so much for the rest
_PORT_MAX = 65535
_PERMISSIONS = (2, 4, 6)


class Role(enum.StrEnum):
    """What this broker is in its group; the values are RocketMQ's."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Where the broker listens, and what a connection may cost."""

    bind: str = "0.0.0.0"
    advertise: str = ""  # what clients are told; empty: the address bound to, or this machine's own
    port: int = 10911  # 0: any free one
    vip_port: int = -1  # answers the same; -1: port - 2 as RocketMQ has it (any free one beside port 0); -2: none
    ha_port: int = -1  # replication, where a master has a secret for it; -1: port + 1 (any free one beside port 0)
    ha_api_port: int = 9405  # /ha/v1, where there is a secret for it; 0: any free one, -1: none
    http_port: int = 9404  # /metrics /healthz /readyz; 0: any free one, -1: none
    idle_s: float = 120.0
    output_bytes_high: int = MIB
    output_bytes_max: int = 64 * MIB
    connections_max: int = 20_000


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The store's folder and sizes; a folder keeps the sizes that it was made with."""

    root: str = "~/store"
    flush: Flush = Flush.ASYNC
    segment_bytes: int = GIB
    queue_file_entries: int = 300_000
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    flush_interval_ms: int = 500
    flush_pages: int = 0  # ASYNC_FLUSH: fewer dirty pages of 4 KiB wait for flush_full_ms
    flush_full_ms: int = 10_000
    checkpoint_interval_ms: int = 1_000
    warm_bytes: int = GIB
    reserved_hours: float = 72.0  # how long a segment is kept after its last write
    delete_hours: tuple[str, ...] = ("04",)  # when expired segments go; above disk_used_max at any hour
    disk_used_max: float = 0.75
    disk_used_clean: float = 0.85  # above it the oldest segments go, expired or not, if clean_forcibly
    clean_forcibly: bool = True
    disk_used_refuse: float = 0.90  # above it messages are refused; reading goes on


@dataclass(frozen=True, slots=True)
class MessagesConfig:
    """What producers may send and how long they wait."""

    body_bytes_max: int = 4 * MIB
    batch_messages_max: int = 10_000
    ack_wait_s: float = 5.0
    parked_bytes_max: int = 64 * MIB
    region: str = "DefaultRegion"


@dataclass(frozen=True, slots=True)
class TopicsConfig:
    """Topics and groups that come into being by themselves."""

    auto_create: bool = True
    check_message_type: bool = True  # a topic's attribute message.type is checked at sends
    template_queues: int = 8
    auto_create_groups: bool = True
    topics_max: int = 10_000
    groups_max: int = 10_000


@dataclass(frozen=True, slots=True)
class PullConfig:
    """How much one pull gets and how many may wait."""

    count_max: int = 1024
    bytes_default: int = 256 << 10  # for a pull that does not say
    bytes_max: int = 4 * MIB
    suspend_ms_max: int = 60_000
    held_max: int = 100_000


@dataclass(frozen=True, slots=True)
class ClientsConfig:
    """How much clients may make the broker remember."""

    registrations_max: int = 100_000
    groups_per_connection_max: int = 1_000
    topics_per_group_max: int = 10_000
    offsets_save_s: float = 5.0
    queue_lock_s: float = 60.0  # an orderly consumer's lease; its own clock stops it 30 s after its last renewal
    queue_locks_max: int = 200_000


class TransactionProfile(enum.StrEnum):
    """Whose defaults the bounds of checking back have."""

    ROCKETMQ = "rocketmq"  # given up after 15 checks without an answer, or 72 hours
    CLOUD = "cloud"  # asked for 12 hours, however often


@dataclass(frozen=True, slots=True)
class TransactionsConfig:
    """Transactional messages: how their producers are asked, and when they are given up."""

    enabled: bool = True
    profile: TransactionProfile = TransactionProfile.ROCKETMQ
    check_interval_s: float = 30.0
    immunity_s: float = 6.0  # nothing is asked before, unless the message says otherwise
    checks_max: int = -1  # -1: as the profile says; 0: any number
    age_max_hours: float = -1.0  # -1: as the profile says
    open_max: int = 1_000_000  # each costs about half a KB of memory


@dataclass(frozen=True, slots=True)
class DelaysConfig:
    """Messages that are delivered later."""

    levels: str = levels.STANDARD  # RocketMQ's messageDelayLevel
    times: bool = True  # messages may ask for a time of their own
    ahead_s_max: int = 3 * 86_400  # how far ahead
    pending_max: int = 10_000_000  # how many may wait for one; each costs about 10 bytes of memory
    recall: bool = True  # producers may take a message back


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """What /metrics shows beyond the broker's own figures."""

    per_topic: bool = True
    per_queue: bool = False
    rocketmq: bool = True  # RocketMQ 5's names and those of its exporter beside ours
    series_max: int = 20_000


@dataclass(frozen=True, slots=True)
class RegistrationConfig:
    """How the broker tells name servers that it is there."""

    period_s: float = 30.0
    timeout_s: float = 3.0


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """A group of one master and its slaves."""

    secret_file: str = ""  # what the group's brokers prove to each other that they know; empty: no replication
    master: str = ""  # host:port of the master's replication port, for a slave; empty: the name servers know it
    min_in_sync: int = 0  # members that acknowledge a message, the master too; 0: 2 under SYNC_MASTER, else 1
    ack_timeout_s: float = 3.0  # how long a producer waits for slaves
    max_lag_s: float = 0.0  # a slave further behind leaves the set; 0: 15 s, or less by renew_every_s
    slave_read: bool = True  # consumers far behind are sent to a slave
    # A group whose master may change: all of its members name one register.  `role` is then the group's policy.
    register: str = ""  # file:/PATH, or lease:NAMESPACE/NAME in a cluster; empty: a static pair
    register_server: str = ""  # https://HOST:PORT; empty: the cluster that this pod runs in
    register_token_file: str = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    register_ca_file: str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    ordinal: int = -1  # this member's place in the group, from 0
    members: tuple[str, ...] = ()  # HOST:PORT of each member's replication port, by ordinal
    handover_s: float = 10.0  # a master that is asked to stop hands the group over first, if it can; 0: it does not
    renew_every_s: float = 2.5  # at most a third of the lease, and half of the time of suspicion


@dataclass(frozen=True, slots=True)
class StandaloneConfig:
    """Only for `gantry standalone`: the name server in the same process."""

    nameserver_port: int = 9876


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The whole tree."""

    cluster: str = "DefaultCluster"
    name: str = "broker-a"
    id: int = 0
    role: Role = Role.ASYNC_MASTER
    name_servers: tuple[str, ...] = ()
    permission: int = 6  # 2 write, 4 read
    network: NetworkConfig = field(default_factory=NetworkConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    messages: MessagesConfig = field(default_factory=MessagesConfig)
    topics: TopicsConfig = field(default_factory=TopicsConfig)
    pull: PullConfig = field(default_factory=PullConfig)
    clients: ClientsConfig = field(default_factory=ClientsConfig)
    transactions: TransactionsConfig = field(default_factory=TransactionsConfig)
    delays: DelaysConfig = field(default_factory=DelaysConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    registration: RegistrationConfig = field(default_factory=RegistrationConfig)
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    standalone: StandaloneConfig = field(default_factory=StandaloneConfig)


HOT = frozenset({"permission", "messages.body_bytes_max", "topics.check_message_type"})
"""Keys that may change while the broker runs."""


def load(
    path: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    base: Mapping[str, object] | None = None,
    first: Callable[[BrokerConfig], None] | None = None,
) -> tuple[BrokerConfig, list[str]]:
    """The configuration and what the operator should be told about it (keys of a broker.conf without meaning here).

    `flags` and `base` have dotted keys (`store.root`); `base` holds a command's own defaults and is weaker than
    the file. ConfigError names key, source and, for an unknown key, the nearest known one.  `first` is a command's own
    look at it, before `check`.
    """
    sources: list[Source] = [from_flags(base or {}, "built-in default")]
    notices: list[str] = []
    commit_log: str | None = None
    if path is not None:
        if path.endswith((".conf", ".properties")):
            source, notices, commit_log = brokerconf.read(path)
            sources.append(source)
        else:
            sources.append(from_yaml(path))
    sources.append(from_environment(BrokerConfig, environment or {}))
    sources.append(from_flags(flags or {}, "flag"))
    config = build(BrokerConfig, sources)
    if first is not None:
        first(config)
    check(config)
    if path is not None and commit_log is not None:
        brokerconf.check_commit_log(path, commit_log, config.store.root)
    return config, notices


def check(config: BrokerConfig) -> None:
    """Refuse what cannot be meant, beyond the types."""
    faults = [text for is_wrong, text in _faults(config) if is_wrong]
    if faults:
        raise ConfigError("; ".join(faults))


def _faults(config: BrokerConfig) -> list[tuple[bool, str]]:
    network, store, messages = config.network, config.store, config.messages
    role = str(config.role)
    ports = {  # key: (found, smallest, what the smallest means)
        "network.port": (network.port, 0, "any free one"),
        "network.vip_port": (network.vip_port, -2, "none"),
        "network.ha_port": (network.ha_port, -1, "port + 1"),
        "network.ha_api_port": (network.ha_api_port, -1, "none"),
        "network.http_port": (network.http_port, -1, "none"),
        "standalone.nameserver_port": (config.standalone.nameserver_port, 0, "any free one"),
    }
    return [
        (
            config.role is not Role.ASYNC_MASTER and not config.replication.secret_file,
            f"role {role}: set replication.secret_file to a file with a secret of {SECRET_BYTES_MIN} bytes or more, "
            "the same on all brokers of the group (haSecretFile in a broker.conf)",
        ),
        (
            not config.replication.register and (config.id == 0) is (config.role is Role.SLAVE),
            f"id {config.id} with role {role}: a master's id is 0, a slave's 1 to {MEMBERS_MAX - 1}",
        ),
        (not 0 <= config.id < MEMBERS_MAX, f"id {config.id}: expected 0 to {MEMBERS_MAX - 1}"),
        (
            not 0 <= config.replication.min_in_sync <= MEMBERS_MAX,
            f"replication.min_in_sync {config.replication.min_in_sync}: expected 0 to {MEMBERS_MAX}",
        ),
        (
            config.replication.ack_timeout_s <= 0 or 0 != config.replication.max_lag_s < 1,
            "replication.ack_timeout_s: expected more than 0; replication.max_lag_s: at least 1, or 0",
        ),
        *_register_faults(config),
        (not config.name or not config.cluster, "name and cluster must not be empty"),
        (config.permission not in _PERMISSIONS, f"permission {config.permission}: expected 2 (write), 4 (read) or 6"),
        *(
            (not low <= port <= _PORT_MAX, f"{key} {port}: expected {low} ({meaning}) to {_PORT_MAX}")
            for key, (port, low, meaning) in ports.items()
        ),
        (
            store.segment_bytes < 2 * messages.body_bytes_max + RECORD_OVERHEAD_BYTES,
            f"store.segment_bytes {store.segment_bytes} is less than two bodies of messages.body_bytes_max "
            f"{messages.body_bytes_max}",
        ),
        (store.segment_bytes % 4096 != 0, f"store.segment_bytes {store.segment_bytes}: expected a multiple of 4096"),
        # Not compared with each other: stock broker.conf files have diskMaxUsedSpaceRatio=88 above the forced 85.
        *(
            (not 0.0 < share <= 1.0, f"store.{name} {share}: expected a share of 1")
            for name, share in (
                ("disk_used_max", store.disk_used_max),
                ("disk_used_clean", store.disk_used_clean),
                ("disk_used_refuse", store.disk_used_refuse),
            )
        ),
        (
            not all(hour.isdecimal() and int(hour) <= 23 for hour in store.delete_hours),
            f"store.delete_hours {', '.join(store.delete_hours)}: expected hours from 00 to 23",
        ),
        (config.pull.bytes_max > 12 * MIB, "pull.bytes_max: a frame has 16 MiB; expected at most 12 MiB"),
        (not 1 <= messages.body_bytes_max <= 12 * MIB, "messages.body_bytes_max: expected 1 byte to 12 MiB"),
        (
            config.transactions.check_interval_s < 0.1 or config.transactions.open_max < 1,
            "transactions.check_interval_s: expected at least 0.1; transactions.open_max: at least 1",
        ),
        (
            config.clients.queue_lock_s < 1 or config.clients.queue_locks_max < 1,
            "clients.queue_lock_s and clients.queue_locks_max: expected at least 1",
        ),
        (
            config.delays.ahead_s_max < 1 or config.delays.pending_max < 1,
            "delays.ahead_s_max and delays.pending_max: expected at least 1",
        ),
        (bool(fault := _levels_fault(config.delays.levels)), f"delays.levels: {fault}"),
        (config.topics.template_queues < 1, "topics.template_queues: expected at least 1"),
        (
            config.pull.count_max < 1 or config.pull.bytes_max < 1,
            "pull.count_max and pull.bytes_max: expected at least 1",
        ),
    ]


def _register_faults(config: BrokerConfig) -> list[tuple[bool, str]]:
    """Of a member of a group with a register."""
    given = config.replication
    if not given.register:
        return []
    kind, _, rest = given.register.partition(":")
    members = len(given.members)
    return [
        (
            not rest or kind not in ("file", "lease") or (kind == "lease" and rest.count("/") != 1),
            f"replication.register {given.register!r}: expected file:/PATH or lease:NAMESPACE/NAME",
        ),
        (not given.secret_file, "replication.register: set replication.secret_file too, the same on all members"),
        (
            (config.role is Role.SLAVE) is (config.id == 0) or config.id not in (0, given.ordinal + 1),
            "with replication.register the role is the group's, SYNC_MASTER or ASYNC_MASTER, and id is not set: "
            "who leads stands in the register",
        ),
        (
            not 2 <= members <= MEMBERS_MAX or not 0 <= given.ordinal < members,
            f"replication.ordinal {given.ordinal} of {members} replication.members: name the replication address of "
            f"each member (2 to {MEMBERS_MAX}) in order, and which of them this is",
        ),
        (
            config.role is Role.SYNC_MASTER and (given.min_in_sync or 2) >= members > 2,
            f"replication.min_in_sync {given.min_in_sync or 2} with {members} members: one loss would stop writes; "
            "choose less, or add a member",
        ),
        (bool(fault := _addresses_fault(given.members)), f"replication.members: {fault}"),
        (given.renew_every_s < 0.1, f"replication.renew_every_s {given.renew_every_s}: expected at least 0.1"),
        (not 0 <= given.handover_s <= 600, f"replication.handover_s {given.handover_s}: expected 0 to 600"),
    ]


def _addresses_fault(addresses: tuple[str, ...]) -> str:
    try:
        for address in addresses:
            split_address(address)
    except ConfigError as error:
        return str(error)
    return ""


def _levels_fault(text: str) -> str:
    try:
        levels.parse(text)
    except ValueError as error:
        return str(error)
    return ""
