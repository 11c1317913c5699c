"""`spec.brokers`: fields, bounds, and which of them contradict each other; pure.

A profile sets what an acknowledgement means; a field that is given explicitly overrides it.  Contradicting fields are
refused by the API server with a text that names the field.  Rules are about the resulting values: `_MODE`, `_FLUSH` and
`_LEAST` compute them in CEL.
"""

from __future__ import annotations

from gantry_operator.api.brokercluster import GROUP, Profile
from gantry_operator.api.fields import (
    FIXED,
    LIVE,
    ROLLS,
    Schema,
    choice,
    flag,
    number,
    rule,
    structure,
    without_default,
    words,
)
from gantry_operator.api.podfields import pod_template, resources, texts

GROUPS_MAX, REPLICAS_MAX, CONFIG_MAX = 64, 5, 64
OWNED = (
    "cluster", "name", "profile", "id", "role", "name_servers", "store.root", "store.flush", "store.flush_interval_ms",
    "standalone.nameserver_port", "standalone.grpc_port", "standalone.queues_port", "standalone.queues_users",
    "standalone.tls_cert", "standalone.tls_key",
)  # fmt: skip
OWNED_SECTIONS = ("network.", "replication.")
_FIXED = (
    "cannot be changed yet, and a volume keeps its size and class for its life: enlarge the PersistentVolumeClaims "
    "themselves where their class allows that; for another class see Storage in operator.md"
)
_QUANTITY = r"^[0-9]+(\.[0-9]+)?([KMGTP]i?)?$"
TIME = r"^[1-9][0-9]{0,5}(ms|s|m)$"
SECONDS = r"^[1-9][0-9]{0,3}(s|m)$"

_MODE = "(has(self.replication.mode) ? self.replication.mode : self.profile == 'fast' ? 'ASYNC_MASTER' : 'SYNC_MASTER')"
_FLUSH = "(has(self.flush.mode) ? self.flush.mode : self.profile == 'durable' ? 'SYNC' : 'ASYNC')"
_IS_SYNC = f"{_MODE} == 'SYNC_MASTER'"
_LEAST = f"(has(self.replication.minInSync) ? self.replication.minInSync : {_IS_SYNC} ? 2 : 1)"


def _patience(name: str, default: str, fast: str) -> str:
    given = f"self.failover.{name}"
    by_name = f"self.failover.timers == 'fast' ? duration('{fast}') : duration('{default}')"
    return f"(has({given}) ? duration({given}) : {by_name})"


_RULES = [
    rule(
        f"!({_IS_SYNC}) || {_LEAST} >= 2",
        "spec.brokers.replication.minInSync: with 1, SYNC_MASTER would acknowledge what the master alone has; 2 or "
        "more, or mode ASYNC_MASTER",
    ),
    rule(
        f"{_IS_SYNC} || {_LEAST} == 1",
        "spec.brokers.replication.minInSync: more than 1 is for SYNC_MASTER; an ASYNC_MASTER waits for nobody",
    ),
    rule(
        f"!({_IS_SYNC}) || self.replicasPerGroup > {_LEAST} || "
        f"(self.replication.allowWritePause && self.replicasPerGroup == {_LEAST})",
        "spec.brokers.replicasPerGroup: more than spec.brokers.replication.minInSync (2 under SYNC_MASTER), so that "
        "writing goes on when one is lost; the same number only with spec.brokers.replication.allowWritePause; profile "
        "fast takes any",
    ),
    rule(
        f"!has(self.flush.interval) || {_FLUSH} == 'ASYNC'",
        "spec.brokers.flush.interval: only of flush mode ASYNC; SYNC flushes before it acknowledges",
    ),
    rule(
        f"{_patience('suspectAfter', '5s', '2s')} < {_patience('leaseDuration', '15s', '6s')}",
        "spec.brokers.failover.suspectAfter: less than spec.brokers.failover.leaseDuration",
    ),
    rule(
        "self.groups >= oldSelf.groups",
        "spec.brokers.groups: a group cannot be taken away yet, its messages would go with it",
    ),
]


def brokers() -> Schema:
    """Return the schema of `spec.brokers`."""
    made = structure(
        "Brokers: groups of one master and its slaves. Topics are spread over the groups.",
        {
            "groups": number(
                "Number of groups. More groups take more load. May grow, also by `kubectl scale`; cannot shrink.",
                1,
                1,
                GROUPS_MAX,
            ),
            "replicasPerGroup": number(
                "Members of each group, the master included. A change replaces no pod: new members copy the log, and "
                "of too many the last one leaves first.",
                3,
                1,
                REPLICAS_MAX,
            ),
            "profile": choice(
                "When a message is acknowledged. durable: on the disk of two members (SYNC_FLUSH, SYNC_MASTER). "
                "replicated: in the memory of two members (ASYNC_FLUSH, SYNC_MASTER). fast: in the memory of the "
                "master (ASYNC_FLUSH, ASYNC_MASTER). `replication` and `flush` override it.",
                [each.value for each in Profile],
                Profile.DURABLE.value,
                ROLLS,
            ),
            "replication": _replication(),
            "flush": _flush(),
            "failover": _failover(),
            "disruption": structure(
                "Limits of planned interruptions, such as a rolling update or a drained node.",
                {
                    "handoverTimeout": _time(
                        "How long a master that is asked to stop may take to hand its group over to a slave. The pod "
                        "has 50 s more to end.",
                        "10s",
                        ("1s", "10m"),
                    )
                },
            ),
            "storage": _storage(),
            "antiAffinity": choice(
                "Whether members of one group may share a node. Required: never, a member without a node of its own "
                "stays pending. Preferred: only where there are too few nodes. None: no rule.",
                ["Required", "Preferred", "None"],
                "Preferred",
                ROLLS,
            ),
            "podTemplate": pod_template("brokers"),
            "config": _config(),
            "resources": resources("the broker's container"),
        },
    )
    return made | {"x-kubernetes-validations": _RULES}


def _replication() -> Schema:
    return structure(
        "How many members have a message before it is acknowledged. What is not given follows from `profile`.",
        {
            "mode": _optional(
                ["SYNC_MASTER", "ASYNC_MASTER"],
                "SYNC_MASTER: producers wait until minInSync members have the message. ASYNC_MASTER: they wait for the "
                f"master alone, and a failover may lose the newest messages. Without it: as `profile` says. {ROLLS}",
            ),
            "minInSync": {
                "description": "Members that must have a message before it is acknowledged, the master included. With "
                f"fewer in the in-sync set writes wait. From 1 to {REPLICAS_MAX - 1}. Without it: 2 under SYNC_MASTER, "
                f"1 under ASYNC_MASTER. {ROLLS}",
                "type": "integer", "minimum": 1, "maximum": REPLICAS_MAX - 1,
            },
            "maxLag": _time(
                "A slave that is behind for longer leaves the in-sync set, and producers wait for it no more. Without "
                "it: four renewals, each a third of the lease or half of the suspicion time, whichever is less; 15s at "
                "most.",
                "",
                ("1s", "10m"),
            ),
            "ackTimeout": _time(
                "How long a producer waits for slaves before it is told FLUSH_SLAVE_TIMEOUT: stored, outcome unknown.",
                "3s",
                ("100ms", "5m"),
            ),
            "allowWritePause": flag(
                "Allow minInSync to equal replicasPerGroup: then the loss of one member stops writes until it is back.",
                False,
                LIVE,
            ),
        },
    )  # fmt: skip


def _flush() -> Schema:
    return structure(
        "When a message is written to the disk. What is not given follows from `profile`.",
        {
            "mode": _optional(
                ["SYNC", "ASYNC"],
                "SYNC: a message is acknowledged when it is on the disk. ASYNC: earlier; a power cut may lose what was "
                f"written within `interval`. Without it: as `profile` says. {ROLLS}",
            ),
            "interval": _time(
                "Longest time between two flushes under ASYNC; refused under SYNC. Without it: the broker's 500ms.",
                "",
                ("1ms", "1m"),
            ),
        },
    )


def _failover() -> Schema:
    return structure(
        "When a silent master is replaced, and by which member.",
        {
            "mode": choice(
                "Automatic: a master that is silent for suspectAfter is replaced. Manual: only by the annotation "
                f"{GROUP}/force-failover.",
                ["Automatic", "Manual"],
                "Automatic",
                LIVE,
            ),
            "timers": choice(
                "How patient the group is. default: suspectAfter 5s, leaseDuration 15s. fast: 2s and 6s, for networks "
                "and disks without pauses of that length.",
                ["default", "fast"],
                "default",
                ROLLS,
            ),
            "suspectAfter": _time(
                "How long a master may be silent before it is replaced. Without it: as `timers` says.", "", ("1s", "5m")
            ),
            "leaseDuration": _time(
                "How long a master may serve after it last renewed its register; longer than suspectAfter. Without it: "
                "as `timers` says.",
                "",
                ("3s", "60m"),
                SECONDS,
            ),
            "fastPath": choice(
                "WhenSafe: under SYNC_MASTER an election does not wait for leaseDuration, since the promises of the "
                "members make it safe. Never: it always waits.",
                ["WhenSafe", "Never"],
                "WhenSafe",
                LIVE,
            ),
            "unclean": choice(
                f"Whether the annotation {GROUP}/force-failover may choose a member outside the in-sync set, which "
                "loses acknowledged messages. Never: it is refused.",
                ["Never", "OnRequest"],
                "Never",
                LIVE,
            ),
            "afterTotalPowerLoss": choice(
                "What a group does whose members all lost their newest records, after a power cut under ASYNC flush. "
                "Automatic: the group goes on with what is left. Manual: it waits for the annotation "
                f"{GROUP}/force-failover.",
                ["Automatic", "Manual"],
                "Automatic",
                LIVE,
            ),
        },
    )


def _storage() -> Schema:
    at, modes = "spec.brokers.storage", ["ReadWriteOnce", "ReadWriteOncePod"]
    return structure(
        "The volume of each member. spec.deletionPolicy says what becomes of it when the cluster is deleted.",
        {
            "size": _fixed(
                words("Size of each volume, as a Kubernetes quantity such as 500Gi.", "100Gi", 32, _QUANTITY, FIXED),
                f"{at}.size",
            ),
            "storageClassName": _fixed(
                words(f"Storage class of the volumes. Empty: the default class of your Kubernetes. {FIXED}", "", 253),
                f"{at}.storageClassName",
            ),
            "accessMode": _fixed(
                choice(
                    "Access mode of the volumes. ReadWriteOncePod also keeps a second pod on the same node from "
                    "mounting one.",
                    modes,
                    modes[0],
                    FIXED,
                ),
                f"{at}.accessMode",
            ),
        },
    )


def _config() -> Schema:
    owned = " || ".join([f"k in {list(OWNED)}", *(f"k.startsWith('{each}')" for each in OWNED_SECTIONS)])
    told = (
        "Keys of broker.yaml, dotted (store.segment_bytes), with values as text, beyond those that the operator sets. "
        "A change of `permission`, `messages.body_bytes_max` and `topics.check_message_type` takes effect at once; a "
        "change of another key replaces the pods, one after the other."
    )
    return texts(told, 1024, CONFIG_MAX) | {
        "x-kubernetes-validations": [
            rule(
                f"!self.exists(k, {owned})",
                "spec.brokers.config: the operator itself sets names, role, addresses, folders, replication",
            )
        ]
    }


def _optional(values: list[str], description: str) -> Schema:
    return {"description": description, "type": "string", "enum": values}


def _time(description: str, default: str, bounds: tuple[str, str], pattern: str = TIME) -> Schema:
    """Return the schema of a time with its unit; without a default when `default` is empty."""
    low, high = bounds
    made = words(f"{description} From {low} to {high}.", default, 8, pattern, ROLLS)
    within = f"duration(self) >= duration('{low}') && duration(self) <= duration('{high}')"
    made["x-kubernetes-validations"] = [rule(within, f"expected {low} to {high}")]
    return made if default else without_default(made)


def _fixed(schema: Schema, path: str) -> Schema:
    return schema | {"x-kubernetes-validations": [rule("self == oldSelf", f"{path} {_FIXED}")]}
