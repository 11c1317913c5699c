"""What NetworkPolicies let in, by their meaning and without a network: a pure evaluator over their documents.

As Kubernetes defines it: a pod that no policy selects for Ingress takes everything; one that some select takes what at
least one rule of one of them allows; a rule without `from` is for everybody, one without `ports` for every port; a peer
without a namespace selector means the policy's own namespace.  Addresses (ipBlock) are not used here and not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Document = dict[str, Any]


class Pod(NamedTuple):
    """Who connects, or is connected to."""

    namespace: str
    labels: Mapping[str, str]


def allows(policies: Iterable[Document], source: Pod, target: Pod, port: int) -> bool:
    """Whether a TCP connection comes through."""
    chosen = [each for each in policies if _selects(each, target)]
    return not chosen or any(_lets_in(each, source, port) for each in chosen)


def _selects(policy: Document, pod: Pod) -> bool:
    spec = policy["spec"]
    is_here = policy["metadata"]["namespace"] == pod.namespace and "Ingress" in spec.get("policyTypes", ["Ingress"])
    return is_here and matches(spec["podSelector"], pod.labels)


def _lets_in(policy: Document, source: Pod, port: int) -> bool:
    for rule in policy["spec"].get("ingress", []):
        ports = [each["port"] for each in rule.get("ports", []) if each.get("protocol", "TCP") == "TCP"]
        if ("ports" not in rule or port in ports) and ("from" not in rule or _is_among(rule["from"], policy, source)):
            return True
    return False


def _is_among(peers: Iterable[Document], policy: Document, source: Pod) -> bool:
    for peer in peers:
        assert peer.keys() <= {"namespaceSelector", "podSelector"}, peer
        if "namespaceSelector" in peer:
            is_there = matches(peer["namespaceSelector"], {"kubernetes.io/metadata.name": source.namespace})
        else:
            is_there = source.namespace == policy["metadata"]["namespace"]
        if is_there and matches(peer.get("podSelector", {}), source.labels):
            return True
    return False


def matches(selector: Document, labels: Mapping[str, str]) -> bool:
    """A label selector; an empty one matches everything."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions", []))


def _holds(expression: Document, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values", [])
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case operator:
            assert operator == "DoesNotExist", operator
            return value is None
