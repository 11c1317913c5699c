"""`podTemplate` and `resources`: additions of users to the pods that the operator makes; pure.

Kubernetes' own types are not copied here: the fields of a container, a volume or an affinity pass unchanged (`_open`).
The API server checks them when the StatefulSet is applied; the condition Stalled quotes what it refuses.  Only fields
that the rules below need have a type here.  The rules protect what belongs to the operator: names of its containers and
volumes, its mounts, variables and labels, and that nothing runs as root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gantry_operator.api.brokercluster import GROUP
from gantry_operator.api.fields import ROLLS, Schema, keyed, rule, structure, words

CONTAINERS_MAX, VOLUMES_MAX = 8, 16
_MAP_MAX, _LIST_MAX = 32, 16
_LABEL = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_OPEN = {"x-kubernetes-preserve-unknown-fields": True}


class Own(NamedTuple):
    """The names in a pod that are the operator's: of containers, volumes, and folders of mounts."""

    containers: Sequence[str]
    volumes: Sequence[str]
    folders: Sequence[str]  # absolute, without a slash at the end


OF_SETS = Own(("broker", "nameserver"), ("store", "config", "secret"), ("/data", "/etc/gantrymq"))


def resources(whose: str) -> Schema:
    """Return the schema of `resources` of a container."""
    amount = {"x-kubernetes-int-or-string": True, "maxLength": 32}
    amounts = {"type": "object", "additionalProperties": amount, "maxProperties": 16}
    told = "by resource: cpu in cores (500m is half a core), memory and ephemeral-storage in bytes (2Gi)"
    return structure(
        f"Processor time and memory of {whose}. {ROLLS}",
        {
            "requests": {"description": f"What is reserved on the node, {told}. Default: nothing."} | amounts,
            "limits": {"description": f"What may be used at most, {told}. Default: no limit."} | amounts,
        },
    )


def pod_template(whose: str, own: Own = OF_SETS) -> Schema:
    """Return the schema of `podTemplate`: additions to the operator's pods, without fields that the operator owns."""
    return structure(
        f"What the pods of {whose} have beyond what the operator gives them.",
        {
            **_metadata(),
            **_placement(),
            "env": _environment(),
            "sidecars": _containers(
                "Containers that run beside the operator's own, as in a pod's `containers`. One without a "
                "securityContext gets no privileges and no capabilities. Default: none.",
                "sidecars",
                own.containers,
            ),
            "initContainers": _containers(
                "Containers that run to their end before the operator's own starts, as in a pod's `initContainers`; "
                "with restartPolicy Always they keep running beside it. Default: none.",
                "initContainers",
                own.containers,
            ),
            "volumes": _volumes(own.volumes),
            "volumeMounts": _mounts(own.folders),
            "securityContext": _security(),
        },
    )


def texts(description: str, longest: int, most: int = _MAP_MAX) -> Schema:
    """Return the schema of a map of texts, each at most `longest` characters long, with at most `most` entries."""
    values = {"type": "string", "maxLength": longest}
    return {
        "description": description, "type": "object", "additionalProperties": values, "maxProperties": most,
        "default": {},
    }  # fmt: skip


def _metadata() -> Schema:
    labels = texts(f"Labels of the pods. Default: none but the operator's. {ROLLS}", 63)
    annotations = texts(f"Annotations of the pods. Default: none but the operator's. {ROLLS}", 1024)
    owned = [f"k.startsWith('{GROUP}/')", "k.startsWith('apps.kubernetes.io/')", "k == 'controller-revision-hash'"]
    for each, name in ((labels, "labels"), (annotations, "annotations")):
        each["x-kubernetes-validations"] = [
            rule(
                f"!self.exists(k, {' || '.join(owned)})",
                f"podTemplate.{name}: those of {GROUP} and of the StatefulSet are set by the operator",
            )
        ]
    return {"labels": labels, "annotations": annotations}


def _placement() -> Schema:
    toleration = {
        "description": "A taint that the pods tolerate.",
        "type": "object",
        "properties": {
            "key": _word("Key of the taint; without it: every key, with operator Exists.", 253),
            "operator": _named("Exists: any value; Equal, the default: the value below.", "Exists", "Equal"),
            "value": _word("Value of the taint, for operator Equal.", 63),
            "effect": _named(
                "Effect of the taint; without it: every effect.", "NoSchedule", "PreferNoSchedule", "NoExecute"
            ),
            "tolerationSeconds": {
                "description": "For NoExecute: seconds until a pod leaves the node; without it: never.",
                "type": "integer", "minimum": 0,
            },
        },
    }  # fmt: skip
    spread = {
        "description": "One rule; it counts the pods of the same StatefulSet.",
        "type": "object",
        "required": ["topologyKey"],
        "properties": {
            "topologyKey": _word("Label of nodes whose values are the domains: topology.kubernetes.io/zone.", 253),
            "maxSkew": {
                "description": "How many more pods one domain may have than another. Default: 1.",
                "type": "integer", "minimum": 1, "default": 1,
            },
            "whenUnsatisfiable": {
                "description": "What happens to a pod that would break the rule: DoNotSchedule leaves it pending. "
                "Default: ScheduleAnyway.",
                "type": "string", "enum": ["ScheduleAnyway", "DoNotSchedule"], "default": "ScheduleAnyway",
            },
        },
    }  # fmt: skip
    affinity = {
        "nodeAffinity": _open("Which nodes the pods want or need, as in a pod."),
        "podAffinity": _open("Near which other pods they want or need to be, as in a pod."),
        "podAntiAffinity": _open("Far from which other pods; added to what `antiAffinity` makes."),
    }
    return {
        "nodeSelector": texts(f"Labels that a node must have. Default: any node. {ROLLS}", 63),
        "tolerations": _list(f"Taints of nodes that the pods tolerate. Default: none. {ROLLS}", toleration),
        "affinity": structure(f"Rules about nodes and other pods, as in a pod. Default: none. {ROLLS}", affinity),
        "spread": _list(
            f"How the pods of one StatefulSet are spread over zones, racks and the like. Default: no rule. {ROLLS}",
            spread,
        ),
        "priorityClassName": words(
            f"Priority class of the pods. Empty: the default class of your Kubernetes. {ROLLS}", "", 253
        ),
    }


def _environment() -> Schema:
    variable = {
        "description": "One variable: its name, and either a value or where the value comes from.",
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": _word("Name of the variable.", 128),
            "value": _word("Its value; without it and without valueFrom: empty.", 1024),
            "valueFrom": _open("Source of the value, as in a container: secretKeyRef, configMapKeyRef, fieldRef."),
        },
    }
    told = f"Variables of the operator's own container, such as TZ. Default: none. {ROLLS}"
    return keyed(told, variable, "name", _MAP_MAX) | {
        "default": [],
        "x-kubernetes-validations": [
            rule(
                "self.all(e, !e.name.startsWith('GANTRY_') && e.name != 'POD_NAME')",
                "podTemplate.env: GANTRY_ variables and POD_NAME are the operator's; keys go to spec.brokers.config",
            ),
            rule(
                "self.all(e, !has(e.value) || !has(e.valueFrom))",
                "podTemplate.env: either a value or valueFrom, not both",
            ),
        ],
    }


def _containers(description: str, field: str, own: Sequence[str]) -> Schema:
    said = "are the operator's own containers" if len(own) > 1 else "is the operator's own container"
    container = _open(
        "A container as in a pod; what is not described here passes as it is.",
        {
            "name": _word("Name of the container, unique in the pod.", 63) | {"pattern": _LABEL},
            "image": _word("Image of the container.", 512) | {"minLength": 1},
        },
        ["name", "image"],
    )
    return keyed(f"{description} {ROLLS}", container, "name", CONTAINERS_MAX) | {
        "default": [],
        "x-kubernetes-validations": [
            rule(
                f"self.all(c, !(c.name in {list(own)}))",
                f"podTemplate.{field}: {' and '.join(own)} {said}",
            )
        ],
    }


def _volumes(own: Sequence[str]) -> Schema:
    volume = _open(
        "A volume as in a pod: its name and one source, such as configMap, secret, emptyDir or csi.",
        {"name": _word("Name of the volume, for volumeMounts.", 63) | {"pattern": _LABEL}},
        ["name"],
    )
    said = "are the operator's own volumes" if len(own) > 1 else "is the operator's own volume"
    told = f"Volumes for sidecars and volumeMounts, as in a pod's `volumes`. Default: none but the operator's. {ROLLS}"
    return keyed(told, volume, "name", VOLUMES_MAX) | {
        "default": [],
        "x-kubernetes-validations": [
            rule(
                f"self.all(v, !(v.name in {list(own)}))",
                f"podTemplate.volumes: {', '.join(own)} {said}",
            )
        ],
    }


def _mounts(own: Sequence[str]) -> Schema:
    mount = _open(
        "Where a volume is mounted; what is not described here passes as it is.",
        {
            "name": _word("Name of the volume.", 63),
            "mountPath": _word("Folder in the container, from its root.", 256) | {"pattern": "^/[^:]+$"},
            "subPath": _word("Folder or file within the volume; without it: its root.", 256),
            "readOnly": {"description": "Whether nothing can be written there. Default: false.", "type": "boolean"},
        },
        ["name", "mountPath"],
    )
    covered = [f"(m.mountPath + '/').startsWith('{each}/')" for each in own]
    covering = [f"'{each}/'.startsWith(m.mountPath + '/')" for each in own]
    told = f"Mounts of `volumes` in the operator's own container. Default: none but the operator's. {ROLLS}"
    return keyed(told, mount, "mountPath", VOLUMES_MAX) | {
        "default": [],
        "x-kubernetes-validations": [
            rule(
                f"!self.exists(m, {' || '.join([*covered, *covering])} || m.mountPath.contains('..'))",
                f"podTemplate.volumeMounts: below {' and '.join(own)} are the operator's own mounts",
            )
        ],
    }


def _security() -> Schema:
    number = {"type": "integer", "minimum": 1, "maximum": (1 << 31) - 1}
    made = _open(
        "Security of the pods, as in a pod's `securityContext`; added to the operator's own (runAsNonRoot, seccomp "
        f"profile RuntimeDefault), and nothing can run as root. Default: none but the operator's. {ROLLS}",
        {
            "runAsUser": {
                "description": "User id of the processes; any id works. Without it: the image's (10001), or the one "
                "that the platform assigns (OpenShift)."
            }
            | number,
            "runAsGroup": {"description": "Group id of the processes, also 0. Without it: the image's."}
            | number
            | {"minimum": 0},
            "fsGroup": {
                "description": "Group id that owns the volumes. Without it: 10001, or the one that the platform "
                "assigns where the operator is told so (the chart's operator.brokerFsGroup)."
            }
            | number,
            "runAsNonRoot": {"description": "Always true; false is refused.", "type": "boolean", "enum": [True]},
        },
    )
    return made | {"default": {}}


def _open(description: str, properties: Schema | None = None, required: list[str] | None = None) -> Schema:
    """Return the schema of an object of which only these fields are checked; others pass unchanged."""
    made: Schema = {"description": description, "type": "object", **_OPEN}
    return made | ({"properties": properties} if properties else {}) | ({"required": required} if required else {})


def _list(description: str, items: Schema) -> Schema:
    return {"description": description, "type": "array", "items": items, "maxItems": _LIST_MAX, "default": []}


def _word(description: str, longest: int) -> Schema:
    return {"description": description, "type": "string", "maxLength": longest}


def _named(description: str, *values: str) -> Schema:
    return {"description": description, "type": "string", "enum": list(values)}
