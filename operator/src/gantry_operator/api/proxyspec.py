"""`spec.proxy` as a value: the gRPC proxies of a cluster; pure.

The field enables proxies by being there, and has no default.  `replicas` is None where it is not given: then the number
stands in the Deployment, and a HorizontalPodAutoscaler or `kubectl scale` may change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PORT = 8081  # gRPC, with TLS and without
CLUSTER_IP, NODE_PORT, LOAD_BALANCER = "ClusterIP", "NodePort", "LoadBalancer"


@dataclass(frozen=True, slots=True)
class Proxy:
    """The settings of a cluster's proxies."""

    replicas: int | None
    workers: int
    service_type: str
    service_annotations: Mapping[str, str]
    tls_secret: str  # empty: no certificate of the user
    pod: Mapping[str, Any]
    resources: Mapping[str, Any]

    @property
    def is_exposed(self) -> bool:
        """Return whether clients outside of Kubernetes connect, too."""
        return self.service_type != CLUSTER_IP


def read_proxy(spec: Mapping[str, Any] | None) -> Proxy | None:
    """Read `spec.proxy` with its defaults filled in; KeyError when a field is missing."""
    if spec is None:
        return None
    service = spec["service"]
    return Proxy(
        replicas=int(spec["replicas"]) if "replicas" in spec else None,
        workers=int(spec["workers"]),
        service_type=service["type"],
        service_annotations=service["annotations"],
        tls_secret=spec["tls"]["secretName"],
        pod=spec["podTemplate"],
        resources=spec["resources"],
    )
