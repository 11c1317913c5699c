"""`spec.brokers` and what pods may be told: fields, bounds, and which of them contradict each other; pure.

A profile sets what an acknowledgement means; a field that is given explicitly wins over it.  What cannot be meant
together is refused here by the API server, in words that name the field, so no cluster runs with it.  Rules speak of
the values that hold in the end: `_MODE`, `_FLUSH` and `_LEAST` are how the server finds them.
"""

from __future__ import annotations

from gantry_operator.api.brokercluster import GROUP, Profile
from gantry_operator.api.fields import Schema, choice, flag, keyed, number, rule, structure, words

GROUPS_MAX, REPLICAS_MAX, CONFIG_MAX = 64, 5, 64
OWNED = (
    "cluster", "name", "id", "role", "name_servers", "store.root", "store.flush", "store.flush_interval_ms",
    "standalone.nameserver_port",
)  # fmt: skip
OWNED_SECTIONS = ("network.", "replication.")
_FIXED = (
    "cannot be changed in a running cluster yet: delete the BrokerCluster and apply it anew, its volumes are kept and "
    "every message is back"
)
_QUANTITY = r"^[0-9]+(\.[0-9]+)?([KMGTP]i?)?$"
_TIME = r"^[1-9][0-9]{0,5}(ms|s|m)$"
_SECONDS = r"^[1-9][0-9]{0,3}(s|m)$"
_MAP_MAX, _LIST_MAX = 32, 16

_MODE = (
    "(has(self.replication.mode) ? self.replication.mode : self.profile == 'fast' ? 'ASYNC_MASTER' : 'SYNC_MASTER')"
)
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
    """`spec.brokers`."""
    made = structure(
        "Groups of one master and its slaves.",
        {
            "groups": number("How many groups; may grow.", 1, 1, GROUPS_MAX),
            "replicasPerGroup": number("Members of each; more or fewer, the last one first.", 3, 1, REPLICAS_MAX),
            "profile": choice(
                "When a message is acknowledged.", [each.value for each in Profile], Profile.DURABLE.value
            ),
            "replication": _replication(),
            "flush": _flush(),
            "failover": _failover(),
            "disruption": structure(
                "What is planned.",
                {"handoverTimeout": _time("How long a master that stops may take to hand over.", "10s", "1s", "10m")},
            ),
            "storage": _storage(),
            "antiAffinity": choice(
                "Whether members of a group may share a node.", ["Required", "Preferred", "None"], "Preferred"
            ),
            "podTemplate": pod_template(),
            "config": _config(),
            "resources": resources(),
        },
    )
    return made | {"x-kubernetes-validations": _RULES}


def resources() -> Schema:
    """Of a container."""
    amount = {"x-kubernetes-int-or-string": True, "maxLength": 32}
    amounts = {"type": "object", "additionalProperties": amount, "maxProperties": 16}
    return structure("As of a container.", {"requests": amounts, "limits": amounts})


def pod_template() -> Schema:
    """What pods have besides what the operator gives them; nothing that it owns can be said here."""
    labels, annotations = _texts("Labels of pods.", 63), _texts("Annotations of pods.", 1024)
    owned = [f"k.startsWith('{GROUP}/')", "k.startsWith('apps.kubernetes.io/')", "k == 'controller-revision-hash'"]
    ours = f"!self.exists(k, {' || '.join(owned)})"
    for each, name in ((labels, "labels"), (annotations, "annotations")):
        each["x-kubernetes-validations"] = [
            rule(ours, f"podTemplate.{name}: those of {GROUP} and of the StatefulSet are set by the operator")
        ]
    toleration = {
        "type": "object",
        "properties": {
            "key": _word(253), "operator": {"type": "string", "enum": ["Exists", "Equal"]}, "value": _word(63),
            "effect": {"type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
            "tolerationSeconds": {"type": "integer", "minimum": 0},
        },
    }  # fmt: skip
    spread = {
        "type": "object",
        "required": ["topologyKey"],
        "properties": {
            "topologyKey": _word(253),
            "maxSkew": {"type": "integer", "minimum": 1, "default": 1},
            "whenUnsatisfiable": {
                "type": "string", "enum": ["ScheduleAnyway", "DoNotSchedule"], "default": "ScheduleAnyway",
            },
        },
    }  # fmt: skip
    variable = {"type": "object", "required": ["name"], "properties": {"name": _word(128), "value": _word(1024)}}
    environment = keyed(variable, "name", _MAP_MAX) | {
        "description": "Variables of the process.",
        "default": [],
        "x-kubernetes-validations": [
            rule(
                "self.all(e, !e.name.startsWith('GANTRY_') && e.name != 'POD_NAME')",
                "podTemplate.env: GANTRY_ variables and POD_NAME are the operator's; keys go to spec.brokers.config",
            )
        ],
    }
    return structure(
        "What pods have beyond what the operator gives them.",
        {
            "labels": labels,
            "annotations": annotations,
            "nodeSelector": _texts("Labels that a node must have.", 63),
            "tolerations": _list("Taints that do not matter.", toleration),
            "spread": _list("How pods of one set are spread over zones and the like.", spread),
            "priorityClassName": words("Empty: the default one.", "", 253),
            "env": environment,
        },
    )


def _replication() -> Schema:
    told = "Who is behind for longer leaves the in-sync set; not given: two suspicions, 15s at most."
    lag = _time(told, "10s", "1s", "10m")
    del lag["default"]
    return structure(
        "How many have a message before it is acknowledged; what is not given is as the profile says.",
        {
            "mode": _optional(["SYNC_MASTER", "ASYNC_MASTER"], "Whether producers wait for slaves."),
            "minInSync": {
                "description": "Members that acknowledge a message, the master too; with fewer in sync, writes wait.",
                "type": "integer", "minimum": 1, "maximum": REPLICAS_MAX - 1,
            },
            "maxLag": lag,
            "ackTimeout": _time("How long a producer waits for slaves.", "3s", "100ms", "5m"),
            "allowWritePause": flag("Let minInSync equal replicasPerGroup: the loss of one stops writes.", False),
        },
    )  # fmt: skip


def _flush() -> Schema:
    interval = _time("How often ASYNC flushes.", "500ms", "1ms", "1m")
    del interval["default"]
    mode = _optional(["SYNC", "ASYNC"], "Whether producers wait for the disk; not given: as the profile says.")
    return structure("When a message is on the disk.", {"mode": mode, "interval": interval})


def _failover() -> Schema:
    suspect = _time("Instead of what `timers` says: how long a master may be silent.", "5s", "1s", "5m")
    lease = _time("Instead of what `timers` says: what a renewal is worth.", "15s", "3s", "60m", _SECONDS)
    del suspect["default"], lease["default"]
    return structure(
        "How patient a group is with its master.",
        {
            "mode": choice("Manual: nobody is sealed by suspicion.", ["Automatic", "Manual"], "Automatic"),
            "timers": choice("Suspicion after 5 s, or after 2 s.", ["default", "fast"], "default"),
            "suspectAfter": suspect,
            "leaseDuration": lease,
            "fastPath": choice(
                "Whether an election waits for the lease although promises make it safe.",
                ["WhenSafe", "Never"],
                "WhenSafe",
            ),
            "unclean": choice(
                f"OnRequest: the annotation {GROUP}/force-failover may choose a member that lacks something.",
                ["Never", "OnRequest"],
                "Never",
            ),
            "afterTotalPowerLoss": choice(
                "Whether a group whose members all lost their newest records goes on with what is left.",
                ["Automatic", "Manual"],
                "Automatic",
            ),
        },
    )


def _storage() -> Schema:
    at = "spec.brokers.storage"
    modes = ["ReadWriteOnce", "ReadWriteOncePod"]
    return structure(
        "A volume for each member; kept when the cluster is deleted, unless spec.deletionPolicy says otherwise.",
        {
            "size": _fixed(words("As a volume claim asks for it.", "100Gi", 32, _QUANTITY), f"{at}.size"),
            "storageClassName": _fixed(words("Empty: the default class.", "", 253), f"{at}.storageClassName"),
            "accessMode": _fixed(choice("As of a volume claim.", modes, modes[0]), f"{at}.accessMode"),
        },
    )


def _config() -> Schema:
    owned = " || ".join([f"k in {list(OWNED)}", *(f"k.startsWith('{each}')" for each in OWNED_SECTIONS)])
    return _texts("Keys of broker.yaml, dotted, beyond those that the operator sets.", 1024, CONFIG_MAX) | {
        "x-kubernetes-validations": [
            rule(
                f"!self.exists(k, {owned})",
                "spec.brokers.config: the operator itself sets names, role, addresses, folders, replication",
            )
        ]
    }


def _texts(description: str, longest: int, count: int = _MAP_MAX) -> Schema:
    values = {"type": "string", "maxLength": longest}
    return {
        "description": description, "type": "object", "additionalProperties": values, "maxProperties": count,
        "default": {},
    }  # fmt: skip


def _list(description: str, items: Schema) -> Schema:
    return {"description": description, "type": "array", "items": items, "maxItems": _LIST_MAX, "default": []}


def _word(longest: int) -> Schema:
    return {"type": "string", "maxLength": longest}


def _optional(values: list[str], description: str) -> Schema:
    return {"description": description, "type": "string", "enum": values}


def _time(description: str, default: str, low: str, high: str, pattern: str = _TIME) -> Schema:
    within = f"duration(self) >= duration('{low}') && duration(self) <= duration('{high}')"
    return words(description, default, 8, pattern) | {
        "x-kubernetes-validations": [rule(within, f"expected {low} to {high}")]
    }


def _fixed(schema: Schema, path: str) -> Schema:
    return schema | {"x-kubernetes-validations": [rule("self == oldSelf", f"{path} {_FIXED}")]}
