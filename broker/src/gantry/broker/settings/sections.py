"""The sections of a broker's configuration: every key with its unit, its bounds and what it does.

The declarations are the only description of a key (`gantry.model.keys`): checks, the page broker/docs/configuration.md
and the operator's check are made from them.  A key has bounds within which a broker works; a test starts one at both
ends.  Every limit of the process is here: each queue, table and wait has one.  Defaults are RocketMQ's where it has
one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from gantry.model.keys import BYTES, SHARE, choice, number, several, switch, words
from gantry.replication.members import MEMBERS_MAX
from gantry.schedule import levels
from gantry.store.settings import Flush

GIB = 1 << 30
MIB = 1 << 20
KIB = 1 << 10
PORT_MAX = 65535
# A frame has 16 MiB at most; the rest is for headers and properties.
BODY_BYTES_MAX = 12 * MIB
_DAY_S, _CENTURY_HOURS = 86_400.0, 876_000.0
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
HOST_PORT = r"\s*(http://)?(\[[^\[\]\s]+\]|[^\[\]\s:/]+):0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-5][0-9]{3})/?\s*"

REGISTER, REGISTER_FORM = r"file:[/~].*|lease:[^/\s]+/[^/\s]+", "file:/PATH or lease:NAMESPACE/NAME"


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Addresses and ports, and what a connection may cost."""

    bind: str = words("0.0.0.0", "Address to listen on; 0.0.0.0: all of IPv4, `::`: all of IPv6 too.", high=255)
    advertise: str = words(
        "", "Address that clients are told. Empty: the one in `network.bind`, or this machine's own.", high=255
    )
    port: int = number(10911, 1, PORT_MAX, "", "Port for clients.", {0: "any free one"})
    vip_port: int = number(
        -1,
        1,
        PORT_MAX,
        "",
        "Second port for clients, which answers the same; RocketMQ's clients may use it.",
        {0: "any free one", -1: "network.port - 2, as RocketMQ has it", -2: "none"},
    )
    ha_port: int = number(
        -1,
        1,
        PORT_MAX,
        "",
        "Port for replication; used where `replication.secret_file` is set.",
        {0: "any free one", -1: "network.port + 1"},
    )
    ha_api_port: int = number(
        9405,
        1,
        PORT_MAX,
        "",
        "Port of `/ha/v1`, by which a coordinator asks and seals this member; used where a secret is set.",
        {0: "any free one", -1: "none"},
    )
    http_port: int = number(
        9404, 1, PORT_MAX, "", "Port of `/metrics`, `/healthz` and `/readyz`.", {0: "any free one", -1: "none"}
    )
    idle_s: float = number(120.0, 1.0, _DAY_S, "seconds", "A connection that is silent for so long is closed.")
    output_bytes_high: int = number(
        MIB, 4 * KIB, GIB, BYTES, "While more output than this waits for a client, nothing is read from it."
    )
    output_bytes_max: int = number(
        64 * MIB,
        MIB,
        2 * GIB,
        BYTES,
        "A connection with more output than this is closed; all together may have four times as much. At least "
        "`network.output_bytes_high`, 64 KiB and the larger of `pull.bytes_max` and `messages.body_bytes_max` added.",
    )
    connections_max: int = number(
        20_000, 1, 1_000_000, "connections", "Largest number of open connections; the next one is closed at once."
    )
    together: bool = switch(True, "Read and write all connections together, where the compiled code for it is there.")


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The store's folder, file sizes, flushing and retention. A folder keeps the file sizes that it was made with."""

    root: str = words("~/store", "Folder of the store; `~` is the user's home.", low=1)
    flush: Flush = choice(
        Flush.ASYNC, "SYNC_FLUSH: acknowledge a message when the disk has it; ASYNC_FLUSH: before that."
    )
    segment_bytes: int = number(
        GIB,
        128 * KIB,
        2 * GIB - 4 * KIB,
        BYTES,
        "Size of one file of the log, a multiple of 4 KiB and at least two bodies of `messages.body_bytes_max`.",
    )
    queue_file_entries: int = number(
        300_000, 1, 107_374_182, "entries", "Messages in one file of a consume queue; each takes 20 bytes."
    )
    index_slots: int = number(
        5_000_000, 1, 100_000_000, "slots", "Hash slots of one file of the key index; each takes 4 bytes."
    )
    index_entries: int = number(
        20_000_000, 2, 100_000_000, "entries", "Keys in one file of the key index; each takes 20 bytes."
    )
    flush_interval_ms: int = number(
        500, 1, 3_600_000, "milliseconds", "ASYNC_FLUSH: how often the log is looked at for something to flush."
    )
    flush_pages: int = number(
        0,
        0,
        1_000_000,
        "pages",
        "ASYNC_FLUSH: less than so many pages of 4 KiB waits for `store.flush_full_ms`; 0: nothing waits.",
    )
    flush_full_ms: int = number(
        10_000, 1, 3_600_000, "milliseconds", "ASYNC_FLUSH: flush after this time however little was written."
    )
    checkpoint_interval_ms: int = number(
        1_000,
        10,
        600_000,
        "milliseconds",
        "How often queues and index are brought to the disk. A start after a crash reads what was written in about two "
        "such periods.",
    )
    warm_bytes: int = number(
        GIB,
        0,
        1024 * GIB,
        BYTES,
        "Reads further behind the end of the log than this are done by a thread of their own, unless the page cache "
        "has the messages.",
    )
    reserved_hours: float = number(
        72.0, 0.0, _CENTURY_HOURS, "hours", "A file of the log may be deleted so long after its last message."
    )
    delete_hours: tuple[str, ...] = several(
        ("04",),
        0,
        24,
        "[01]?[0-9]|2[0-3]",
        "hours from 00 to 23",
        "Hours at which expired files are deleted; none: only when the disk is full (`store.disk_used_max`).",
    )
    disk_used_max: float = number(
        0.75, 0.01, 1.0, SHARE, "Above this share of used disk, expired files are deleted at any hour."
    )
    disk_used_clean: float = number(
        0.85,
        0.01,
        1.0,
        SHARE,
        "Above this share the oldest files go, expired or not (`store.clean_forcibly`).",
    )
    clean_forcibly: bool = switch(True, "Whether files that are not expired are deleted above `store.disk_used_clean`.")
    disk_used_refuse: float = number(
        0.90, 0.01, 1.0, SHARE, "Above this share of used disk, messages are refused; reading goes on."
    )


@dataclass(frozen=True, slots=True)
class MessagesConfig:
    """What producers may send, and how long they wait."""

    body_bytes_max: int = number(
        4 * MIB, 1, BODY_BYTES_MAX, BYTES, "Largest body of a message, and of a batch as a whole.", is_hot=True
    )
    batch_messages_max: int = number(10_000, 1, 1_000_000, "messages", "Largest number of messages in one batch.")
    ack_wait_s: float = number(
        5.0, 0.01, 3_600.0, "seconds", "How long a producer waits for the disk before it reads FLUSH_DISK_TIMEOUT."
    )
    parked_bytes_max: int = number(
        64 * MIB,
        64 * KIB,
        16 * GIB,
        BYTES,
        "While more bytes of answers than this wait for disk or slaves, producers are not read from.",
    )
    region: str = words(
        "DefaultRegion", "Name of the region; written into messages for tracing.",
        r"[^\x00-\x1f\x7f]*", "text of at most 127 characters without control characters", high=127,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopicsConfig:
    """Topics and consumer groups that are made by their first use, and how many there may be."""

    auto_create: bool = switch(True, "Whether the first message to an unknown topic makes it.")
    check_message_type: bool = switch(
        False,
        "Whether a message has to be of the type that its topic's attribute `message.type` names, not only at a proxy.",
        is_hot=True,
    )
    template_queues: int = number(
        8, 1, 65_536, "queues", "Queues of the template for such topics; a client may ask for fewer."
    )
    auto_create_groups: bool = switch(True, "Whether the first use of an unknown consumer group makes it.")
    topics_max: int = number(10_000, 100, 1_000_000, "topics", "Largest number of topics, the system's included.")
    groups_max: int = number(10_000, 100, 1_000_000, "groups", "Largest number of consumer groups.")


@dataclass(frozen=True, slots=True)
class PullConfig:
    """How much one pull gets, and how many may wait."""

    count_max: int = number(1024, 1, 1_000_000, "messages", "Largest number of messages in one answer.")
    bytes_default: int = number(
        256 * KIB, 1, BODY_BYTES_MAX, BYTES, "Size of an answer where the pull does not name one."
    )
    bytes_max: int = number(
        4 * MIB, 1, BODY_BYTES_MAX, BYTES, "Largest size of an answer; one message is given whatever its size."
    )
    suspend_ms_max: int = number(
        60_000, 1, 3_600_000, "milliseconds", "How long a pull that finds nothing is held at most."
    )
    held_max: int = number(
        100_000,
        1,
        10_000_000,
        "pulls",
        "Largest number of held pulls; a further one is refused and asks again. A connection, or a queue, may hold as "
        "many as are left for others.",
    )


@dataclass(frozen=True, slots=True)
class ClientsConfig:
    """How much clients may make the broker remember."""

    registrations_max: int = number(
        100_000, 1, 10_000_000, "registrations", "Largest number of clients in groups; each counts once for each group."
    )
    groups_per_connection_max: int = number(1_000, 1, 100_000, "groups", "Largest number of groups on one connection.")
    topics_per_group_max: int = number(
        10_000, 1, 1_000_000, "topics", "Largest number of topics that one group subscribes to."
    )
    offsets_save_s: float = number(5.0, 0.1, 3_600.0, "seconds", "How often consumer offsets are brought to the disk.")
    queue_lock_s: float = number(
        60.0,
        1.0,
        _DAY_S,
        "seconds",
        "How long an orderly consumer holds a queue without renewing. RocketMQ's clients renew every 20 s and stop "
        "30 s after their last renewal.",
    )
    queue_locks_max: int = number(200_000, 1, 10_000_000, "locks", "Largest number of queues that are locked.")


class TransactionProfile(enum.StrEnum):
    """Whose defaults the bounds of checking back have."""

    ROCKETMQ = "rocketmq"  # given up after 15 checks without an answer, or 72 hours
    CLOUD = "cloud"  # asked for 12 hours, however often


@dataclass(frozen=True, slots=True)
class TransactionsConfig:
    """Transactional messages: how their producers are asked, and when they are given up."""

    enabled: bool = switch(True, "Whether transactional messages are taken.")
    profile: TransactionProfile = choice(
        TransactionProfile.ROCKETMQ,
        "When a transaction without an answer is given up: `rocketmq` after 15 checks or `store.reserved_hours`, "
        "`cloud` after 12 hours however often it was asked.",
    )
    check_interval_s: float = number(30.0, 0.1, _DAY_S, "seconds", "How often the producers of open ones are asked.")
    immunity_s: float = number(
        6.0, 0.0, 7 * _DAY_S, "seconds", "How old one is before it is asked about, unless the message says otherwise."
    )
    checks_max: int = number(
        -1,
        1,
        1_000_000,
        "checks",
        "How often one is asked about before it is given up.",
        {0: "any number", -1: "as transactions.profile says"},
    )
    age_max_hours: float = number(
        -1.0,
        0.0,
        _CENTURY_HOURS,
        "hours",
        "How old one gets before it is given up.",
        {-1: "as transactions.profile says"},
    )
    open_max: int = number(
        1_000_000, 1, 50_000_000, "transactions", "Largest number of open ones; each takes half a KB of memory."
    )


@dataclass(frozen=True, slots=True)
class DelaysConfig:
    """Messages that are delivered later."""

    levels: str = words(
        levels.STANDARD,
        "Durations of the delay levels, from level 1 on.",
        pattern=rf"\s*[0-9]{{1,9}}[smhd](\s+[0-9]{{1,9}}[smhd]){{0,{levels.LEVELS_MAX - 1}}}\s*",
        form=f"1 to {levels.LEVELS_MAX} durations such as 10s, 5m, 2h or 1d, with spaces between them",
    )
    times: bool = switch(True, "Whether messages may ask for a time of their own.")
    ahead_s_max: int = number(3 * 86_400, 1, 366 * 86_400, "seconds", "How far ahead such a time may be.")
    pending_max: int = number(
        10_000_000, 1, 500_000_000, "messages", "How many may wait for such a time; each takes 10 bytes of memory."
    )
    recall: bool = switch(True, "Whether producers may take such a message back.")


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """What `/metrics` shows beyond the broker's own figures."""

    per_topic: bool = switch(True, "Whether figures are shown for each topic and each group.")
    per_queue: bool = switch(False, "Whether figures are shown for each queue too.")
    rocketmq: bool = switch(True, "Whether figures are shown under the names of RocketMQ and of its exporter too.")
    series_max: int = number(20_000, 1, 200_000, "series", "Largest number of series of one metric.")


@dataclass(frozen=True, slots=True)
class RegistrationConfig:
    """How the broker tells name servers that it is there."""

    period_s: float = number(
        30.0, 1.0, 60.0, "seconds", "How often it registers; name servers forget a broker after 120 s of silence."
    )
    timeout_s: float = number(3.0, 0.1, 60.0, "seconds", "How long it waits for the answer of a name server.")


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """A group of one master and its slaves. With a register its master may change, and `role` is the group's policy."""

    secret_file: str = words(
        "", "File with a secret of 16 bytes or more, the same on all brokers of the group. Empty: no replication."
    )
    master: str = words(
        "",
        "For a slave: HOST:PORT of the master's replication port. Empty: the name servers know it.",
        pattern=f"({HOST_PORT})?",
        form="HOST:PORT or empty",
    )
    min_in_sync: int = number(
        0,
        1,
        MEMBERS_MAX,
        "members",
        "Members that have a message before it is acknowledged, the master too; with fewer in sync, writes wait.",
        {0: "2 under SYNC_MASTER, else 1"},
    )
    ack_timeout_s: float = number(3.0, 0.01, 3_600.0, "seconds", "SYNC_MASTER: how long a producer waits for slaves.")
    max_lag_s: float = number(
        0.0,
        1.0,
        600.0,
        "seconds",
        "A slave that is further behind leaves the in-sync set (`maxLag` of a BrokerCluster).",
        {0: "15 s, with a register four times replication.renew_every_s if that is less"},
    )
    slave_read: bool = switch(True, "Whether consumers further behind than `store.warm_bytes` read from a slave.")
    register: str = words(
        "",
        "Where it is written who leads: file:/PATH, or lease:NAMESPACE/NAME in Kubernetes. Empty: a static pair.",
        pattern=f"({REGISTER})?",
        form=f"{REGISTER_FORM}, or empty",
    )
    register_server: str = words(
        "",
        "API server of a Lease, https://HOST:PORT. Empty: the cluster that this pod runs in.",
        pattern=r"(https?://[^\s/]+/?)?",
        form="https://HOST:PORT or empty",
    )
    register_token_file: str = words(f"{_TOKEN}/token", "File with the token for that server.", low=1)
    register_ca_file: str = words(f"{_TOKEN}/ca.crt", "File with the certificate of that server's authority.", low=1)
    ordinal: int = number(
        -1, 0, MEMBERS_MAX - 1, "", "This member's place in `replication.members`, from 0.", {-1: "not given"}
    )
    members: tuple[str, ...] = several(
        (),
        0,
        MEMBERS_MAX,
        HOST_PORT,
        "HOST:PORT",
        "With a register: the replication address of every member, by ordinal.",
    )
    handover_s: float = number(
        10.0, 0.0, 600.0, "seconds", "A master that is stopped hands over to another member within this time; 0: never."
    )
    renew_every_s: float = number(
        2.5,
        0.1,
        600.0,
        "seconds",
        "How often a master renews in the register: a third of the lease and half of the time of suspicion at most.",
    )
