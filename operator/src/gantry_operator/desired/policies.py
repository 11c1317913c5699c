"""Network policies of a cluster: for its name servers, its brokers and, where it has them, its doors; pure.

    10911, 10909, 9876   clients: pods of any namespace with the label gantrymq.io/client=yes, or all
    8081, 9407           the same clients; all where the Service of the proxies, or the queues, is open to the outside
    10912, 9405          members of the same cluster and the operator: replication, and orders to members
    9404                 all, or named namespaces: metrics and probes, which contain nothing confidential

The cluster itself and the operator's namespace may connect to all ports.  Only incoming connections are restricted;
outgoing ones (to name servers, brokers, the API server) are left to policies of the administrator.  `Unguarded` allows
everything by policies of its own, so that none has to be deleted.  Policies have no effect where no network enforces
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gantry_operator.api.brokercluster import CLIENT, LABEL_CLUSTER, LABEL_COMPONENT, BrokerCluster, Document
from gantry_operator.api.doorspec import DOORS
from gantry_operator.desired import brokers, nameservers
from gantry_operator.desired.labels import of_door, of_nameservers, owned
from gantry_operator.desired.pods import HTTP_PORT

NAMESPACE = "kubernetes.io/metadata.name"  # the API server gives it to every namespace
_SERVED: Mapping[str, Sequence[int]] = {
    "nameserver": (nameservers.PORT,),
    "broker": (brokers.PORT, brokers.VIP_PORT),
    **{each.component: (each.port,) for each in DOORS},
}
_AMONG_MEMBERS = (brokers.HA_PORT, brokers.HA_API_PORT)


def objects(cluster: BrokerCluster, home: str) -> list[Document]:
    """Return the policies; `home` is the operator's own namespace."""
    of_brokers = {LABEL_CLUSTER: cluster.key.name, LABEL_COMPONENT: "broker"}
    ours = [{"podSelector": {"matchLabels": {LABEL_CLUSTER: cluster.key.name}}}, _namespaces([home])]
    made = []
    chosen = {"nameserver": of_nameservers(cluster), "broker": of_brokers}
    chosen |= {each.kind.component: of_door(cluster, each.kind) for each in cluster.doors}
    for component, labels in chosen.items():
        ingress = [{}] if cluster.guard.clients == "Unguarded" else _ingress(cluster, component, ours)
        document: Document = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": f"{cluster.key.name}-{component}"},
            "spec": {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"], "ingress": ingress},
        }
        made.append(owned(cluster, document, labels))
    return made


def _ingress(cluster: BrokerCluster, component: str, ours: Sequence[Document]) -> list[Document]:
    clients = {"namespaceSelector": {}, "podSelector": {"matchLabels": dict([CLIENT])}}
    watchers = [_namespaces(cluster.guard.metrics_namespaces), *ours] if cluster.guard.metrics_namespaces else []
    is_exposed = any(each.is_exposed for each in cluster.doors if each.kind.component == component)
    is_open = cluster.guard.clients != "Labelled" or is_exposed
    served = [] if is_open else [*ours, clients]
    rules = [_rule(_SERVED[component], served), _rule([HTTP_PORT], watchers)]
    return [*rules, _rule(_AMONG_MEMBERS, ours)] if component == "broker" else rules


def _rule(ports: Sequence[int], whom: Sequence[Document]) -> Document:
    """Return an ingress rule for these ports; an empty `whom` allows connections from everywhere."""
    rule: Document = {"ports": [{"protocol": "TCP", "port": port} for port in ports]}
    return rule | {"from": list(whom)} if whom else rule


def _namespaces(names: Sequence[str]) -> Document:
    return {"namespaceSelector": {"matchExpressions": [{"key": NAMESPACE, "operator": "In", "values": list(names)}]}}
