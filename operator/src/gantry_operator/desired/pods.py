"""What the pods of name servers and brokers have in common: nobody's rights, a root that cannot be written, probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gantry_operator.api.brokercluster import Document, Image

USER = 10001
HTTP_PORT = 9404


def restricted() -> Document:
    """As the pod security standard `restricted` asks."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container(name: str, image: Image, arguments: list[str], ports: dict[str, int], resources: Any) -> Document:
    """One container; nothing but its volumes can be written."""
    return {
        "name": name,
        "image": image.name,
        "imagePullPolicy": image.policy,
        "args": arguments,
        "ports": [{"name": each, "containerPort": port} for each, port in ports.items()],
        "resources": dict(resources),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        # A broker that recovers a large store says so; it is not killed for it.
        "startupProbe": _probe("/healthz", period_s=2, failures=300),
        "livenessProbe": _probe("/healthz", period_s=10, failures=6),
    }


def ready(path: str) -> Document:
    """A readiness probe."""
    return _probe(path, period_s=2, failures=2)


def _probe(path: str, period_s: int, failures: int) -> Document:
    return {
        "httpGet": {"path": path, "port": HTTP_PORT},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def apart(labels: dict[str, str], how: str) -> Document:
    """Affinity that keeps pods with these labels on nodes of their own."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    if how == "Required":
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if how == "Preferred":
        weighted = [{"weight": 100, "podAffinityTerm": term}]
        return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}
    return {}


def template(
    labels: dict[str, str], annotations: dict[str, str], given: Mapping[str, Any], image: Image, spec: Document
) -> Document:
    """A pod's template: what the operator says, and around it what a person asked for (`podTemplate`)."""
    (server,) = spec["containers"]
    variables = [{"name": each["name"], "value": each.get("value", "")} for each in given["env"]]
    wanted = {
        "nodeSelector": dict(given["nodeSelector"]),
        "tolerations": [dict(each) for each in given["tolerations"]],
        "topologySpreadConstraints": [
            dict(each) | {"labelSelector": {"matchLabels": labels}} for each in given["spread"]
        ],
        "priorityClassName": given["priorityClassName"],
        "imagePullSecrets": [{"name": each} for each in image.secrets],
    }
    return {
        "metadata": {"labels": {**given["labels"], **labels}, "annotations": {**given["annotations"], **annotations}},
        "spec": spec
        | {"containers": [server | {"env": [*server.get("env", []), *variables]}]}
        | {name: value for name, value in wanted.items() if value},
    }
