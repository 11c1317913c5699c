"""What the pods of name servers and brokers have in common: no rights, a root that cannot be written, probes.

They meet the pod security standard `restricted` and run with any user id: the image names one, no pod template does, so
a platform may assign ids to each namespace (OpenShift).  Only their volumes are written to; these belong to the
group `Image.volume_group`, or to the one that the platform assigns.

The users' `podTemplate` is added to that and replaces nothing of ours (`podfields` refuses that beforehand where it
can).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gantry_operator.api.brokercluster import Document, Image

HTTP_PORT = 9404
UNPRIVILEGED: Document = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def container(name: str, image: Image, arguments: list[str], ports: dict[str, int], resources: Any) -> Document:
    """Return a container that can write only to its volumes."""
    return {
        "name": name,
        "image": image.name,
        "imagePullPolicy": image.policy,
        "args": arguments,
        "ports": [{"name": each, "containerPort": port} for each, port in ports.items()],
        "resources": dict(resources),
        "securityContext": UNPRIVILEGED | {"readOnlyRootFilesystem": True},
        # A broker that recovers a large store answers /healthz, so it is not killed.
        "startupProbe": _probe("/healthz", period_s=2, failures=300),
        "livenessProbe": _probe("/healthz", period_s=10, failures=6),
    }


def ready(path: str) -> Document:
    """Return a readiness probe for this path: every 2 s, not ready after two failures."""
    return _probe(path, period_s=2, failures=2)


def _probe(path: str, period_s: int, failures: int) -> Document:
    return {
        "httpGet": {"path": path, "port": HTTP_PORT},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def apart(labels: dict[str, str], how: str) -> Document:
    """Return the affinity that keeps pods with these labels on different nodes."""
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
    """Return a pod's template: the operator's part, and the additions of `podTemplate`."""
    (server,) = spec["containers"]
    wanted = {
        "affinity": _joined(spec["affinity"], given.get("affinity", {})),
        "nodeSelector": dict(given["nodeSelector"]),
        "tolerations": [dict(each) for each in given["tolerations"]],
        "topologySpreadConstraints": [
            dict(each) | {"labelSelector": {"matchLabels": labels}} for each in given["spread"]
        ],
        "priorityClassName": given["priorityClassName"],
        "imagePullSecrets": [{"name": each} for each in image.secrets],
        "initContainers": [_unprivileged(each) for each in given.get("initContainers", ())],
        "volumes": [*spec.get("volumes", ()), *(dict(each) for each in given.get("volumes", ()))],
    }
    return {
        "metadata": {"labels": {**given["labels"], **labels}, "annotations": {**given["annotations"], **annotations}},
        "spec": spec
        | {
            "containers": [_served(server, given), *(_unprivileged(each) for each in given.get("sidecars", ()))],
            "securityContext": _security(given.get("securityContext", {}), image),
        }
        | {name: value for name, value in wanted.items() if value},
    }


def _served(server: Document, given: Mapping[str, Any]) -> Document:
    """Return the operator's own container, with the users' variables and mounts after its own."""
    variables = [dict(each) if "valueFrom" in each else {"value": "", **each} for each in given["env"]]
    mounts = [*server.get("volumeMounts", ()), *(dict(each) for each in given.get("volumeMounts", ()))]
    return server | {"env": [*server.get("env", []), *variables]} | ({"volumeMounts": mounts} if mounts else {})


def _unprivileged(given: Mapping[str, Any]) -> Document:
    return {"securityContext": UNPRIVILEGED, **given}


def _security(given: Mapping[str, Any], image: Image) -> Document:
    """Return a security context that meets the standard `restricted`; it sets no user id."""
    volumes: Document = {"fsGroupChangePolicy": "OnRootMismatch"}
    if image.volume_group is not None:
        volumes["fsGroup"] = image.volume_group
    return {**volumes, "seccompProfile": {"type": "RuntimeDefault"}, **given, "runAsNonRoot": True}


def _joined(ours: Mapping[str, Any], given: Mapping[str, Any]) -> Document:
    """Join two affinities: a list that both have gets the terms of both."""
    made = dict(ours)
    for name, value in given.items():
        before = made.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            made[name] = _joined(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            made[name] = before + value
        else:
            made[name] = value
    return made
