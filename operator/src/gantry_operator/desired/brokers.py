"""One group of brokers: a StatefulSet whose pods are started together and replaced by nobody but the operator.

Each member has a Service of its own, whose address stands in the messages that it stores (storeHost) and therefore must
stay for the cluster's life; the headless Service is for members among themselves.  Both lead to pods that are not
ready: the role decides who serves, not readiness.  What differs between members comes from the pod's index.

Volumes outlive the set and the cluster: whoever applies the same cluster again finds every message.
"""

from __future__ import annotations

import yaml

from gantry.failover.timers import TIMERS
from gantry_operator.api.brokercluster import PROMISES, BrokerCluster, Document, Group
from gantry_operator.desired.labels import CONFIG, digest_of, of_group, owned
from gantry_operator.desired.pods import HTTP_PORT, apart, container, ready, restricted

PORT, VIP_PORT, HA_PORT, HA_API_PORT = 10911, 10909, 10912, 9405
GRACE_S = 60
_PORTS = {"remoting": PORT, "vip": VIP_PORT, "ha": HA_PORT, "ha-api": HA_API_PORT, "http": HTTP_PORT}
_INDEX = "metadata.labels['apps.kubernetes.io/pod-index']"


def objects(group: Group, image: str) -> list[Document]:
    """All of them; what the set needs comes before it."""
    cluster, labels, name = group.cluster, of_group(group), group.name
    ports = [{"name": each, "port": port} for each, port in _PORTS.items()]
    headless = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels, "ports": ports}
    documents: list[Document] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        *_rights(group),
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": headless},
        *(_member(group, pod) for pod in group.pods),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {"broker.yaml": yaml.safe_dump(settings(group), sort_keys=True)},
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
        },
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": _set(group, image)},
    ]
    return [owned(cluster, each, labels) for each in documents]


def settings(group: Group) -> dict[str, object]:
    """broker.yaml: the same for every member."""
    cluster, brokers = group.cluster, group.cluster.brokers
    promise, namespace = PROMISES[brokers.profile], cluster.key.namespace
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
        "replication.members": ",".join(f"{pod}.{group.name}.{namespace}.svc:{HA_PORT}" for pod in group.pods),
        "replication.min_in_sync": promise.min_in_sync,
        "replication.renew_every_s": TIMERS[brokers.timers].renew_every_s,
    }
    return wanted | dict(brokers.config)


def _rights(group: Group) -> list[Document]:
    """A broker may read and change the one Lease of its group, and nothing else."""
    rule = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [group.name],
        "verbs": ["get", "patch", "update"],
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


def _set(group: Group, image: str) -> Document:
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
    claim: Document = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": brokers.storage_size}}}
    if brokers.storage_class:
        claim["storageClassName"] = brokers.storage_class
    return {
        "serviceName": group.name,
        "replicas": brokers.replicas,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "selector": {"matchLabels": labels},
        "template": {
            # A pod does not hear of a ConfigMap that changed: another digest makes it another template.
            "metadata": {"labels": labels, "annotations": {CONFIG: digest_of(settings(group))}},
            "spec": {
                "serviceAccountName": group.name,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": GRACE_S,
                "securityContext": restricted(),
                "affinity": apart(labels, brokers.anti_affinity),
                "containers": [server],
                "volumes": [
                    {"name": "config", "configMap": {"name": group.name}},
                    {"name": "secret", "secret": {"secretName": cluster.secret, "defaultMode": 0o440}},
                ],
            },
        },
        "volumeClaimTemplates": [{"metadata": {"name": "store", "labels": labels}, "spec": claim}],
    }


def _environment(cluster: BrokerCluster) -> list[Document]:
    def field(name: str, path: str) -> Document:
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

    return [
        field("POD_NAME", "metadata.name"),
        field("GANTRY_REPLICATION_ORDINAL", _INDEX),
        {"name": "GANTRY_NETWORK_ADVERTISE", "value": f"$(POD_NAME).{cluster.key.namespace}.svc"},
    ]
