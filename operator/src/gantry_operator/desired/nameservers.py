"""The name servers of a cluster: a StatefulSet, a name for each pod, one Service for clients to begin with."""

from __future__ import annotations

from gantry_operator.api.brokercluster import BrokerCluster, Document, Image
from gantry_operator.desired.labels import ROLLED, asked, of_nameservers, owned
from gantry_operator.desired.pods import HTTP_PORT, apart, container, ready, template

PORT = 9876
# By a variable, which older images ignore: with those /readyz answers like /healthz.
_AWAIT_BROKERS = {"name": "GANTRY_NAMESERVER_AWAIT_BROKERS", "value": "true"}


def objects(cluster: BrokerCluster, image: Image) -> list[Document]:
    """Return all objects of a cluster's name servers; those that the set needs come before it."""
    labels, name = of_nameservers(cluster), cluster.nameserver
    ports = [{"name": "remoting", "port": PORT}]
    headless = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels, "ports": ports}
    documents: list[Document] = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": headless},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"{cluster.key.name}-nameserver"},
            "spec": {"selector": labels, "ports": ports},
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name},
            # None is ready while no broker runs; they must not keep a node from being drained then.
            "spec": {
                "maxUnavailable": 1,
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": {"matchLabels": labels},
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": name, "annotations": asked(cluster, cluster.wishes.roll)},
            "spec": _set(cluster, image),
        },
    ]
    return [owned(cluster, each, labels) for each in documents]


def _set(cluster: BrokerCluster, image: Image) -> Document:
    labels = of_nameservers(cluster)
    ports = {"remoting": PORT, "http": HTTP_PORT}
    server = container("nameserver", image, ["nameserver"], ports, cluster.nameserver_resources)
    spec: Document = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": apart(labels, "Preferred"),
        "containers": [server | {"env": [_AWAIT_BROKERS], "readinessProbe": ready("/readyz")}],
    }
    annotations = {ROLLED: cluster.wishes.roll} if cluster.wishes.roll else {}
    return {
        "serviceName": cluster.nameserver,
        "replicas": cluster.nameservers,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": template(labels, annotations, cluster.nameserver_pod, image, spec),
    }
