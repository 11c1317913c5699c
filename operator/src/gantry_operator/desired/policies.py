"""Network policies of a cluster: for its name servers, its brokers and, if it has any, its proxies; pure.

    10911, 10909, 9876   clients: pods of any namespace with the label gantrymq.io/client=yes, or all
    8081                 the same clients; all where the Service of the proxies is open to the outside
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
from gantry_operator.api.proxyspec import PORT as PROXY_PORT
from gantry_operator.desired import brokers, nameservers
from gantry_operator.desired.labels import of_nameservers, of_proxies, owned
from gantry_operator.desired.pods import HTTP_PORT

NAMESPACE = "kubernetes.io/metadata.name"  # the API server gives it to every namespace
_SERVED: Mapping[str, Sequence[int]] = {
    "nameserver": (nameservers.PORT,),
    "broker": (brokers.PORT, brokers.VIP_PORT),
    "proxy": (PROXY_PORT,),
}
_AMONG_MEMBERS = (brokers.HA_PORT, brokers.HA_API_PORT)


def objects(cluster: BrokerCluster, home: str) -> list[Document]:
    """Return the policies; `home` is the operator's own namespace."""
    of_brokers = {LABEL_CLUSTER: cluster.key.name, LABEL_COMPONENT: "broker"}
    ours = [{"podSelector": {"matchLabels": {LABEL_CLUSTER: cluster.key.name}}}, _namespaces([home])]
    made = []
    chosen = {"nameserver": of_nameservers(cluster), "broker": of_brokers}
    chosen |= {"proxy": of_proxies(cluster)} if cluster.proxy is not None else {}
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
    is_open = cluster.guard.clients != "Labelled" or (
        component == "proxy" and cluster.proxy is not None and cluster.proxy.is_exposed
    )
    served = [] if is_open else [*ours, clients]
    rules = [_rule(_SERVED[component], served), _rule([HTTP_PORT], watchers)]
    return [*rules, _rule(_AMONG_MEMBERS, ours)] if component == "broker" else rules


def _rule(ports: Sequence[int], whom: Sequence[Document]) -> Document:
    """Return an ingress rule for these ports; an empty `whom` allows connections from everywhere."""
    rule: Document = {"ports": [{"protocol": "TCP", "port": port} for port in ports]}
    return rule | {"from": list(whom)} if whom else rule


def _namespaces(names: Sequence[str]) -> Document:
    return {"namespaceSelector": {"matchExpressions": [{"key": NAMESPACE, "operator": "In", "values": list(names)}]}}
