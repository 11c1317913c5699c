"""The gRPC proxies of a cluster: a Deployment, its Service, its PodDisruptionBudget; pure.

A proxy keeps no state and has no rights.  All of them sign receipt handles with the same keys, so a message that one
proxy delivered may be acknowledged at any other one.  Keys and certificate are in one volume; the digest of both is in
the template, so a change of either replaces the pods, whether a proxy reads its files again or not.

A rolling update has replicas - 1 proxies ready at any time, and one of one.  A proxy that is told to end finishes what
it has begun (`DRAIN_S`); before that it goes on for `UNLISTED_S`, in which the Service stops leading to it.
"""

from __future__ import annotations

from typing import NamedTuple

from gantry_operator.api.brokercluster import GROUP, BrokerCluster, Document, Image
from gantry_operator.api.proxyspec import PORT, Proxy
from gantry_operator.desired.labels import ROLLED, asked, of_proxies, owned
from gantry_operator.desired.pods import HTTP_PORT, apart, container, ready, template

DRAIN_S, UNLISTED_S, END_S = 30, 5, 10  # calls under way (a proxy gives them 3 s); the Service; the rest of the end
KEYS = "keys"  # field of the Secret
SECRETS = f"{GROUP}/secrets"  # annotation of pods: digest of the keys and the certificate
CERTIFICATE, PRIVATE_KEY = "tls.crt", "tls.key"
_FOLDER, _KEY_FILE = "/etc/gantrymq/secret", "handle-keys"
_SCRATCH = "/tmp"  # of the socket between a proxy's own parts, and of the certificate that it makes itself


class ProxyShape(NamedTuple):
    """The parts of the Deployment that depend on the present state, not only on the specification."""

    replicas: int
    secrets: str  # digest of the keys and the certificate


def objects(cluster: BrokerCluster, proxy: Proxy) -> list[Document]:
    """Return the objects of the proxies but for the Deployment (`deployment`) and the Secret with the keys."""
    labels, name = of_proxies(cluster), cluster.proxies
    service: Document = {"type": proxy.service_type, "selector": labels, "ports": [{"name": "grpc", "port": PORT}]}
    about = {"name": name, "annotations": dict(proxy.service_annotations)}
    budget = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",  # one that is not ready serves nobody
        "selector": {"matchLabels": labels},
    }
    documents: list[Document] = [
        {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": service},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": budget},
    ]
    return [owned(cluster, each, labels) for each in documents]


def deployment(cluster: BrokerCluster, proxy: Proxy, image: Image, shape: ProxyShape) -> Document:
    """Return the Deployment."""
    labels, rolled = of_proxies(cluster), cluster.wishes.roll
    requested = "/".join(filter(None, [rolled, shape.secrets]))
    annotations = {SECRETS: shape.secrets} | ({ROLLED: rolled} if rolled else {})
    spec = {
        "replicas": shape.replicas,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": min(1, shape.replicas - 1), "maxSurge": 1},
        },
        "selector": {"matchLabels": labels},
        "template": template(labels, annotations, proxy.pod, image, _pod(cluster, proxy, image)),
    }
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": cluster.proxies, "annotations": asked(cluster, requested)},
        "spec": spec,
    }
    return owned(cluster, document, labels)


def secret(cluster: BrokerCluster, service_uid: str, keys: str) -> Document:
    """Return the Secret with the keys, `keys` in base64; it belongs to the Service of the proxies.

    The operator may not delete Secrets.  Kubernetes deletes this one with its Service, when `spec.proxy` is removed.
    """
    document = owned(cluster, {"metadata": {"name": cluster.proxy_secret}}, of_proxies(cluster))
    owner = {"apiVersion": "v1", "kind": "Service", "name": cluster.proxies, "uid": service_uid}
    metadata = document["metadata"] | {"ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": {KEYS: keys}}


def _pod(cluster: BrokerCluster, proxy: Proxy, image: Image) -> Document:
    server = container("proxy", image, _arguments(cluster, proxy), {"grpc": PORT, "http": HTTP_PORT}, proxy.resources)
    server |= {
        "readinessProbe": ready("/readyz"),
        "lifecycle": {"preStop": {"sleep": {"seconds": UNLISTED_S}}},
        "volumeMounts": [
            {"name": "secret", "mountPath": _FOLDER, "readOnly": True},
            {"name": "tmp", "mountPath": _SCRATCH},
        ],
    }
    keys = {"name": cluster.proxy_secret, "items": [{"key": KEYS, "path": _KEY_FILE}]}
    files = [{"key": each, "path": each} for each in (CERTIFICATE, PRIVATE_KEY)]
    sources = [{"secret": keys}]
    sources += [{"secret": {"name": proxy.tls_secret, "items": files}}] if proxy.tls_secret else []
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": UNLISTED_S + DRAIN_S + END_S,
        "affinity": apart(of_proxies(cluster), "Preferred"),
        "containers": [server],
        "volumes": [
            {"name": "secret", "projected": {"sources": sources, "defaultMode": 0o440}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def _arguments(cluster: BrokerCluster, proxy: Proxy) -> list[str]:
    options = {
        "namesrv": ";".join(cluster.nameserver_addresses),
        "grpc-port": str(PORT),
        "http-port": str(HTTP_PORT),
        "handle-key-file": f"{_FOLDER}/{_KEY_FILE}",
        "workers": str(proxy.workers),
    }
    if proxy.tls_secret:
        options |= {"tls-cert": f"{_FOLDER}/{CERTIFICATE}", "tls-key": f"{_FOLDER}/{PRIVATE_KEY}"}
    else:  # clients for Java and Go use TLS unless they are told not to, and verify nothing by default
        options |= {"tls-self-signed": f"{_SCRATCH}/tls"}
    return ["proxy", *(word for name, value in options.items() for word in (f"--{name}", value))]
