"""What each field of a BrokerCluster does, read back from what runs: no field is without a row here.

    value     what a person sets, other than the default
    running   key and value of a member's own configuration, as it answers at `/ha/v1/config`
    pod       path and value in a broker's pod; `name_server` in a name server's; `claim` in a member's volume claim
    loop      name and value in the orders of the failover loop
    guard     path and value in the NetworkPolicy of the brokers
    door      kind, path and value in the Deployment or the Service of the proxies, or of HTTP queues
    shown_by  a test of tests/e2e that changes this field alone
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Effect(NamedTuple):
    """Of one field; exactly one of the last ones is given."""

    value: object
    running: tuple[str, object] | None = None
    pod: tuple[str, object] | None = None
    name_server: tuple[str, object] | None = None
    claim: tuple[str, object] | None = None
    loop: tuple[str, object] | None = None
    guard: tuple[str, object] | None = None
    door: tuple[str, str, object] | None = None
    shown_by: str = ""


_POD = "spec.brokers.podTemplate."
_NAMES = "spec.nameserver.podTemplate."
_TAINT = {"key": "disk", "operator": "Exists"}
_SPREAD = {"topologyKey": "kubernetes.io/os", "maxSkew": 3, "whenUnsatisfiable": "ScheduleAnyway"}
_LINUX = {"kubernetes.io/os": "linux"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NODES = {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}]}}
_NODES_FOUND = f"nodeAffinity.{_REQUIRED}.nodeSelectorTerms.0.matchExpressions.0.key"
_TERM = {"topologyKey": "kubernetes.io/os", "labelSelector": {"matchLabels": {"gantrymq.io/cluster": "orders"}}}
_PODS = {_PREFERRED: [{"weight": 1, "podAffinityTerm": _TERM}]}
_IMAGE = "docker.io/gantrymq/broker:test"
_BESIDE = {"name": "beside", "image": _IMAGE, "command": ["sleep", "infinity"]}
_BEFORE = {"name": "before", "image": _IMAGE, "command": ["true"]}
_SCRATCH = {"name": "scratch", "emptyDir": {}}
_MOUNT = {"name": "scratch", "mountPath": "/scratch"}
_NODE_NAME = {"name": "NODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}}
_PROXY, _QUEUES = "spec.proxy.", "spec.queues."
_ANY_USER = "test_a_cluster_runs_with_any_user_id_where_pods_are_restricted"
_REPLICATION, _FAILOVER = "spec.brokers.replication.", "spec.brokers.failover."
_MEMORY = {"requests": {"memory": "64Mi"}}

_TEMPLATE = "spec.template"
_SERVER = f"{_TEMPLATE}.spec.containers.0"
_OF_DOORS: Mapping[str, tuple[object, str, object]] = {  # value, path in the template, value there
    "labels": ({"team": "tea"}, "metadata.labels.team", "tea"),
    "annotations": ({"note": "x"}, "metadata.annotations.note", "x"),
    "nodeSelector": (_LINUX, "spec.nodeSelector.kubernetes~io/os", "linux"),
    "tolerations": ([_TAINT], "spec.tolerations.0.key", "disk"),
    "spread": ([_SPREAD], "spec.topologySpreadConstraints.0.maxSkew", 3),
    "priorityClassName": ("system-node-critical", "spec.priorityClassName", "system-node-critical"),
    "env": ([_NODE_NAME], "spec.containers.0.env.-1.name", "NODE"),
    "affinity.nodeAffinity": (_NODES, f"spec.affinity.{_NODES_FOUND}", "kubernetes.io/os"),
    "affinity.podAffinity": (_PODS, f"spec.affinity.podAffinity.{_PREFERRED}.#", 1),
    "affinity.podAntiAffinity": (_PODS, f"spec.affinity.podAntiAffinity.{_PREFERRED}.#", 2),
    "sidecars": ([_BESIDE], "spec.containers.1.name", "beside"),
    "initContainers": ([_BEFORE], "spec.initContainers.0.name", "before"),
    "volumes": ([_SCRATCH], "spec.volumes.-1.name", "scratch"),
    "volumeMounts": ([_MOUNT], "spec.containers.0.volumeMounts.-1.mountPath", "/scratch"),
    "securityContext.runAsUser": (1000650000, "spec.securityContext.runAsUser", 1000650000),
    "securityContext.runAsGroup": (7, "spec.securityContext.runAsGroup", 7),
    "securityContext.fsGroup": (1000650000, "spec.securityContext.fsGroup", 1000650000),
    "securityContext.runAsNonRoot": (True, "spec.securityContext.runAsNonRoot", True),
}
_OF_ALL_DOORS: Mapping[str, Effect] = {
    "replicas": Effect(4, door=("Deployment", "spec.replicas", 4)),
    "service.type": Effect("NodePort", door=("Service", "spec.type", "NodePort")),
    "service.annotations": Effect({"lb": "inner"}, door=("Service", "metadata.annotations.lb", "inner")),
    "resources": Effect(_MEMORY, door=("Deployment", f"{_SERVER}.resources.requests.memory", "64Mi")),
    **{f"podTemplate.{name}": Effect(value, door=("Deployment", f"{_TEMPLATE}.{path}", told))
       for name, (value, path, told) in _OF_DOORS.items()},
}  # fmt: skip

EFFECTS: Mapping[str, Effect] = {
    "spec.image": Effect("", shown_by="test_an_image_that_cannot_be_pulled_is_named_and_hurts_nobody_else"),
    "spec.imagePullPolicy": Effect("Never", pod=("spec.containers.0.imagePullPolicy", "Never")),
    "spec.imagePullSecrets": Effect(["regcred"], pod=("spec.imagePullSecrets.0.name", "regcred")),
    "spec.deletionPolicy": Effect(
        "Delete", shown_by="test_a_cluster_whose_volumes_go_with_it_leaves_nothing"
    ),
    "spec.networkPolicy.clients": Effect("Any", guard=("spec.ingress.0.#", 1)),
    "spec.networkPolicy.metricsNamespaces": Effect(
        ["monitoring"], guard=("spec.ingress.1.from.0.namespaceSelector.matchExpressions.0.values.0", "monitoring")
    ),
    "spec.nameserver.replicas": Effect(3, running=("name_servers.#", 3)),
    "spec.nameserver.resources": Effect(_MEMORY, name_server=("spec.containers.0.resources.requests.memory", "64Mi")),
    f"{_NAMES}labels": Effect({"team": "tea"}, name_server=("metadata.labels.team", "tea")),
    f"{_NAMES}annotations": Effect({"note": "x"}, name_server=("metadata.annotations.note", "x")),
    f"{_NAMES}nodeSelector": Effect(_LINUX, name_server=("spec.nodeSelector.kubernetes~io/os", "linux")),
    f"{_NAMES}tolerations": Effect([_TAINT], name_server=("spec.tolerations.0.key", "disk")),
    f"{_NAMES}spread": Effect([_SPREAD], name_server=("spec.topologySpreadConstraints.0.maxSkew", 3)),
    f"{_NAMES}priorityClassName": Effect(
        "system-node-critical", name_server=("spec.priorityClassName", "system-node-critical")
    ),
    f"{_NAMES}env": Effect([{"name": "TZ", "value": "UTC"}], name_server=("spec.containers.0.env.-1.name", "TZ")),
    f"{_NAMES}affinity.nodeAffinity": Effect(_NODES, name_server=(f"spec.affinity.{_NODES_FOUND}", "kubernetes.io/os")),
    f"{_NAMES}affinity.podAffinity": Effect(_PODS, name_server=(f"spec.affinity.podAffinity.{_PREFERRED}.#", 1)),
    f"{_NAMES}affinity.podAntiAffinity": Effect(
        _PODS, name_server=(f"spec.affinity.podAntiAffinity.{_PREFERRED}.#", 2)
    ),
    f"{_NAMES}sidecars": Effect([_BESIDE], name_server=("spec.containers.1.name", "beside")),
    f"{_NAMES}initContainers": Effect([_BEFORE], name_server=("spec.initContainers.0.name", "before")),
    f"{_NAMES}volumes": Effect([_SCRATCH], name_server=("spec.volumes.0.name", "scratch")),
    f"{_NAMES}volumeMounts": Effect([_MOUNT], name_server=("spec.containers.0.volumeMounts.0.mountPath", "/scratch")),
    f"{_NAMES}securityContext.runAsUser": Effect(1000650000, shown_by=_ANY_USER),
    f"{_NAMES}securityContext.runAsGroup": Effect(0, shown_by=_ANY_USER),
    f"{_NAMES}securityContext.fsGroup": Effect(1000650000, shown_by=_ANY_USER),
    f"{_NAMES}securityContext.runAsNonRoot": Effect(True, name_server=("spec.securityContext.runAsNonRoot", True)),
    "spec.brokers.groups": Effect(2, shown_by="test_a_cluster_grows_by_a_group_as_anything_is_scaled"),
    "spec.brokers.replicasPerGroup": Effect(4, shown_by="test_members_come_and_go_under_a_ledger"),
    "spec.brokers.profile": Effect("replicated", running=("store.flush", "ASYNC_FLUSH")),
    f"{_REPLICATION}mode": Effect("ASYNC_MASTER", shown_by="test_a_promise_that_changes_is_kept_by_every_member"),
    f"{_REPLICATION}minInSync": Effect(3, running=("replication.min_in_sync", 3)),
    f"{_REPLICATION}maxLag": Effect("20s", running=("replication.max_lag_s", 20.0)),
    f"{_REPLICATION}ackTimeout": Effect("4s", running=("replication.ack_timeout_s", 4.0)),
    f"{_REPLICATION}allowWritePause": Effect(
        True, shown_by="test_two_members_are_enough_for_who_accepts_a_pause"
    ),
    "spec.brokers.flush.mode": Effect("ASYNC", running=("store.flush", "ASYNC_FLUSH")),
    "spec.brokers.flush.interval": Effect("250ms", running=("store.flush_interval_ms", 250)),
    f"{_FAILOVER}mode": Effect("Manual", loop=("policy.is_automatic", False)),
    f"{_FAILOVER}timers": Effect("fast", loop=("timers.suspect_after_s", 2.0)),
    f"{_FAILOVER}suspectAfter": Effect("4s", running=("replication.renew_every_s", 2.0)),
    f"{_FAILOVER}leaseDuration": Effect("21s", loop=("timers.lease_s", 21)),
    f"{_FAILOVER}fastPath": Effect("Never", loop=("policy.has_fast_path", False)),
    f"{_FAILOVER}unclean": Effect("OnRequest", loop=("policy.forced.unclean", True)),
    f"{_FAILOVER}afterTotalPowerLoss": Effect("Manual", loop=("policy.after_total_power_loss", False)),
    "spec.brokers.disruption.handoverTimeout": Effect("15s", running=("replication.handover_s", 15.0)),
    "spec.brokers.storage.size": Effect("1Gi", claim=("spec.resources.requests.storage", "1Gi")),
    "spec.brokers.storage.storageClassName": Effect("local", claim=("spec.storageClassName", "local")),
    "spec.brokers.storage.accessMode": Effect("ReadWriteOncePod", claim=("spec.accessModes.0", "ReadWriteOncePod")),
    "spec.brokers.antiAffinity": Effect(
        "Required",
        pod=("spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.#", 1),
    ),
    f"{_POD}labels": Effect({"team": "tea"}, pod=("metadata.labels.team", "tea")),
    f"{_POD}annotations": Effect({"note": "x"}, pod=("metadata.annotations.note", "x")),
    f"{_POD}nodeSelector": Effect(_LINUX, pod=("spec.nodeSelector.kubernetes~io/os", "linux")),
    f"{_POD}tolerations": Effect([_TAINT], pod=("spec.tolerations.0.key", "disk")),
    f"{_POD}spread": Effect([_SPREAD], pod=("spec.topologySpreadConstraints.0.maxSkew", 3)),
    f"{_POD}priorityClassName": Effect(
        "system-node-critical", pod=("spec.priorityClassName", "system-node-critical")
    ),
    f"{_POD}env": Effect(
        [_NODE_NAME], pod=("spec.containers.0.env.-1.valueFrom.fieldRef.fieldPath", "spec.nodeName")
    ),
    f"{_POD}affinity.nodeAffinity": Effect(_NODES, pod=(f"spec.affinity.{_NODES_FOUND}", "kubernetes.io/os")),
    f"{_POD}affinity.podAffinity": Effect(_PODS, pod=(f"spec.affinity.podAffinity.{_PREFERRED}.#", 1)),
    f"{_POD}affinity.podAntiAffinity": Effect(
        _PODS, pod=(f"spec.affinity.podAntiAffinity.{_PREFERRED}.#", 1)
    ),
    f"{_POD}sidecars": Effect([_BESIDE], pod=("spec.containers.1.name", "beside")),
    f"{_POD}initContainers": Effect([_BEFORE], pod=("spec.initContainers.0.name", "before")),
    f"{_POD}volumes": Effect([_SCRATCH], pod=("spec.volumes.3.name", "scratch")),
    f"{_POD}volumeMounts": Effect([_MOUNT], pod=("spec.containers.0.volumeMounts.3.mountPath", "/scratch")),
    f"{_POD}securityContext.runAsUser": Effect(1000650000, shown_by=_ANY_USER),
    f"{_POD}securityContext.runAsGroup": Effect(0, shown_by=_ANY_USER),
    f"{_POD}securityContext.fsGroup": Effect(1000650000, shown_by=_ANY_USER),
    f"{_POD}securityContext.runAsNonRoot": Effect(True, pod=("spec.securityContext.runAsNonRoot", True)),
    "spec.brokers.config": Effect({"pull.count_max": "512"}, running=("pull.count_max", 512)),
    f"{_PROXY}workers": Effect(3, door=("Deployment", f"{_SERVER}.args.10", "3")),
    f"{_PROXY}tls.secretName": Effect(
        "shop", door=("Deployment", f"{_TEMPLATE}.spec.volumes.0.projected.sources.1.secret.name", "shop")
    ),
    f"{_QUEUES}users.secretName": Effect(
        "shop", door=("Deployment", f"{_TEMPLATE}.spec.volumes.0.projected.sources.1.secret.name", "shop")
    ),
    **{f"{door}{name}": effect for door in (_PROXY, _QUEUES) for name, effect in _OF_ALL_DOORS.items()},
    "spec.brokers.resources": Effect(_MEMORY, pod=("spec.containers.0.resources.requests.memory", "64Mi")),
}


def wanted(names: Mapping[str, Effect]) -> dict[str, Any]:
    """A specification with these fields set."""
    made: dict[str, Any] = {}
    for path, effect in names.items():
        *folders, last = path.split(".")[1:]
        place = made
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = effect.value
    return made


def found(document: Any, path: str) -> object:
    """What stands at a path: names and numbers between dots, `~` for a dot in a name, `#` for how many."""
    for step in path.split("."):
        if step == "#":
            return len(document)
        if step.removeprefix("-").isdecimal():
            document = document[int(step)]
        elif isinstance(document, Mapping):
            document = document[step.replace("~", ".")]
        else:
            document = getattr(document, step)
    return document
