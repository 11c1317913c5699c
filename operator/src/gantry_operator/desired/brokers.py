"""One group of brokers: a StatefulSet whose pods are started together and replaced only by the operator.

Each member has a Service of its own.  Its address is in the messages that the member stores (storeHost), so it must
never change; the headless Service is for connections between members.  Both lead also to pods that are not
ready: the role decides which member serves, not readiness.  Settings that differ by member come from the pod's index.

Volumes are kept when the set or the cluster is deleted: the same cluster applied again has every message.

The configuration names as many members as there may ever be, so no pod is replaced when a group grows or shrinks.  Nor
is a pod replaced for keys that a broker applies while it runs.
All other keys have their digest in the name of the ConfigMap, which is deleted when no pod was made for it any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import yaml

from gantry.broker.settings import sources
from gantry.broker.settings.config import HOT, BrokerConfig
from gantry.broker.settings.keyrules import check
from gantry_operator.api.brokercluster import BrokerCluster, Document, Group, Image
from gantry_operator.api.brokerfields import REPLICAS_MAX
from gantry_operator.api.terms import terms_of
from gantry_operator.desired.labels import ROLLED, TERMS, asked, digest_of, of_group, owned
from gantry_operator.desired.pods import HTTP_PORT, apart, container, ready, template

PORT, VIP_PORT, HA_PORT, HA_API_PORT = 10911, 10909, 10912, 9405
OF_A_MEMBER = frozenset({"id", "role", "network.advertise", "replication.master", "replication.ordinal"})
GROUPS_KEPT = 1024  # groups whose configuration is not made again in each pass: some 4 MB; it was most of a pass's time
GRACE_S = 50  # beyond the handover: to end connections and to sync what is left
_PORTS = {"remoting": PORT, "vip": VIP_PORT, "ha": HA_PORT, "ha-api": HA_API_PORT, "http": HTTP_PORT}
_INDEX = "metadata.labels['apps.kubernetes.io/pod-index']"


class Shape(NamedTuple):
    """The parts of a set that depend on the present state, not only on the specification."""

    replicas: int  # a member that is to go leaves the in-sync set first
    rolled: str = ""  # pods are replaced once for each value


def rolled(of_cluster: str, of_set: str) -> str:
    """Return the value of a manual rolling update, requested at the cluster, at the set, or at both."""
    return "/".join(each for each in (of_cluster, of_set) if each)


def objects(group: Group, image: Image, shape: Shape) -> list[Document]:
    """Return all objects of a group; those that the set needs come before it."""
    cluster, labels, name = group.cluster, of_group(group), group.name
    ports = [{"name": each, "port": port} for each, port in _PORTS.items()]
    headless = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels, "ports": ports}
    documents: list[Document] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        *_rights(group),
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": headless},
        *(_member(group, group.pod(ordinal)) for ordinal in range(max(shape.replicas, cluster.brokers.replicas))),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": config_of(group)},
            "data": {"broker.yaml": _written(_told(group))},
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": name, "annotations": asked(cluster, shape.rolled)},
            "spec": _set(group, image, shape),
        },
    ]
    return [owned(cluster, each, labels) for each in documents]


def settings(group: Group) -> dict[str, object]:
    """Return the content of broker.yaml, which is the same for every member."""
    cluster, brokers = group.cluster, group.cluster.brokers
    promise, namespace = brokers.promise, cluster.key.namespace
    pods = [group.pod(ordinal) for ordinal in range(REPLICAS_MAX)]
    wanted: dict[str, object] = {
        "cluster": cluster.key.name,
        "name": group.name,
        "role": promise.role,
        "name_servers": ";".join(cluster.nameserver_addresses),
        "network.port": PORT,
        "network.vip_port": VIP_PORT,
        "network.ha_port": HA_PORT,
        "network.ha_api_port": HA_API_PORT,
        "network.http_port": HTTP_PORT,
        "store.root": "/data/store",
        "store.flush": promise.flush,
        "replication.secret_file": "/etc/gantrymq/secret/key",
        "replication.register": f"lease:{namespace}/{group.name}",
        "replication.members": ",".join(f"{pod}.{group.name}.{namespace}.svc:{HA_PORT}" for pod in pods),
        "replication.min_in_sync": promise.min_in_sync,
        "replication.renew_every_s": brokers.failover.timers.renew_every_s,
        "replication.handover_s": brokers.handover_s,
        **brokers.times,
    }
    return wanted | dict(brokers.config)


def as_run(group: Group) -> dict[str, object]:
    """Return every key with the value that a member should run with, but for `OF_A_MEMBER`; ConfigError naming an
    invalid key.
    """
    return dict(_run_with(_told(group)))


def _told(group: Group) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(settings(group).items()))


@lru_cache(GROUPS_KEPT)
def _written(told: tuple[tuple[str, object], ...]) -> str:
    return yaml.safe_dump(dict(told), sort_keys=True)


@lru_cache(GROUPS_KEPT)
def _run_with(told: tuple[tuple[str, object], ...]) -> Mapping[str, object]:
    wanted = {"replication.ordinal": 0, **dict(told)}
    config = sources.build(BrokerConfig, [sources.from_flags(wanted, "spec.brokers.config")])
    check(config)
    values = sources.flat(config)
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in values.items()
        if key not in OF_A_MEMBER
    }


def _rights(group: Group) -> list[Document]:
    """A broker may read and change the one Lease of its group, and nothing else."""
    rule = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [group.name],
        "verbs": ["get", "patch"],
    }
    account = {"kind": "ServiceAccount", "name": group.name, "namespace": group.cluster.key.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": group.name}
    kind, about = "rbac.authorization.k8s.io/v1", {"name": group.name}
    return [
        {"apiVersion": kind, "kind": "Role", "metadata": about, "rules": [rule]},
        {"apiVersion": kind, "kind": "RoleBinding", "metadata": about, "roleRef": role, "subjects": [account]},
    ]


def _member(group: Group, pod: str) -> Document:
    chosen = of_group(group) | {"statefulset.kubernetes.io/pod-name": pod}
    ports = [{"name": each, "port": _PORTS[each]} for each in ("remoting", "vip")]
    spec = {"publishNotReadyAddresses": True, "selector": chosen, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": pod}, "spec": spec}


def _set(group: Group, image: Image, shape: Shape) -> Document:
    cluster, labels = group.cluster, of_group(group)
    brokers = cluster.brokers
    arguments = ["broker", "--config", "/etc/gantrymq/config/broker.yaml"]
    server = container("broker", image, arguments, _PORTS, brokers.resources)
    server |= {
        "env": _environment(cluster),
        "readinessProbe": ready("/readyz"),
        "volumeMounts": [
            {"name": "store", "mountPath": "/data"},
            {"name": "config", "mountPath": "/etc/gantrymq/config", "readOnly": True},
            {"name": "secret", "mountPath": "/etc/gantrymq/secret", "readOnly": True},
        ],
    }
    storage = brokers.storage
    claim: Document = {"accessModes": [storage.access_mode], "resources": {"requests": {"storage": storage.size}}}
    if storage.storage_class:
        claim["storageClassName"] = storage.storage_class
    return {
        "serviceName": group.name,
        "replicas": shape.replicas,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "selector": {"matchLabels": labels},
        "template": template(labels, _annotations(group, shape), brokers.pod, image, _pod(group, server)),
        "volumeClaimTemplates": [{"metadata": {"name": "store", "labels": labels}, "spec": claim}],
    }


def config_of(group: Group) -> str:
    """Name of the ConfigMap: another one for every other configuration, but for keys that a broker takes while it runs.

    So a container that the kubelet starts again in place begins with the configuration, and on the terms, for which its
    pod was made; and another configuration is another template.
    """
    return f"{group.name}-{digest_of({key: each for key, each in settings(group).items() if key not in HOT})}"


def _annotations(group: Group, shape: Shape) -> dict[str, str]:
    about = {TERMS: str(terms_of(group.cluster.brokers))}
    return about | ({ROLLED: shape.rolled} if shape.rolled else {})


def _pod(group: Group, server: Document) -> Document:
    brokers = group.cluster.brokers
    return {
        "serviceAccountName": group.name,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": round(brokers.handover_s) + GRACE_S,
        "affinity": apart(of_group(group), brokers.anti_affinity),
        "containers": [server],
        "volumes": [
            {"name": "config", "configMap": {"name": config_of(group)}},
            {"name": "secret", "secret": {"secretName": group.cluster.secret, "defaultMode": 0o440}},
        ],
    }


def _environment(cluster: BrokerCluster) -> list[Document]:
    def field(name: str, path: str) -> Document:
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

    return [
        field("POD_NAME", "metadata.name"),
        field("GANTRY_REPLICATION_ORDINAL", _INDEX),
        {"name": "GANTRY_NETWORK_ADVERTISE", "value": f"$(POD_NAME).{cluster.key.namespace}.svc"},
    ]
