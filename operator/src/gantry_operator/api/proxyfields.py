"""`spec.proxy`: fields and bounds of the gRPC proxies; pure.

The field has no default: a cluster has proxies where it is written, and `proxy: {}` is enough.  Its own fields have
defaults, which the API server fills in once the field is there.
"""

from __future__ import annotations

from gantry_operator.api.brokercluster import GROUP
from gantry_operator.api.fields import LIVE, ROLLS, Schema, choice, number, rule, structure, without_default, words
from gantry_operator.api.podfields import Own, pod_template, resources, texts
from gantry_operator.api.proxyspec import CLUSTER_IP, LOAD_BALANCER, NODE_PORT

REPLICAS, REPLICAS_MAX, WORKERS_MAX, ANNOTATIONS_MAX = 2, 100, 64, 32
OWN = Own(("proxy",), ("secret", "tmp"), ("/tmp", "/etc/gantrymq"))
_SECRET = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$"


def proxy() -> Schema:
    """Return the schema of `spec.proxy`."""
    made = structure(
        "Proxies for clients that speak gRPC (RocketMQ 5), with the cluster's image. There are some where this field "
        f"is written; `{{}}` suffices. They keep no state. {LIVE}",
        {
            "replicas": {
                "description": f"Number of proxies. From 1 to {REPLICAS_MAX}. Without it: {REPLICAS} at first, and "
                "then as many as a HorizontalPodAutoscaler of the Deployment, or `kubectl scale`, says. A change "
                "replaces no pod.",
                "type": "integer", "minimum": 1, "maximum": REPLICAS_MAX,
            },
            "workers": number(
                "Processes in each proxy; with more of them a proxy uses more cores.", 1, 1, WORKERS_MAX, ROLLS
            ),
            "service": structure(
                "The Service of the proxies, NAME-proxy, port 8081.",
                {
                    "type": choice(
                        "ClusterIP: for clients in this Kubernetes. NodePort, LoadBalancer: also for clients outside, "
                        "so the NetworkPolicy lets everybody connect to the port.",
                        [CLUSTER_IP, NODE_PORT, LOAD_BALANCER],
                        CLUSTER_IP,
                        LIVE,
                    ),
                    "annotations": _annotations(),
                },
            ),
            "tls": structure(
                "The certificate that clients see.",
                {
                    "secretName": words(
                        "Secret of this namespace with `tls.crt` and `tls.key` (type kubernetes.io/tls). Empty: a "
                        "certificate that each proxy makes itself, which clients cannot verify. A change of the field, "
                        "or of the Secret, replaces the pods, one after the other.",
                        "",
                        253,
                        _SECRET,
                    )
                },
            ),
            "podTemplate": pod_template("proxies", OWN),
            "resources": resources("the proxy's container"),
        },
    )  # fmt: skip
    return without_default(made)


def _annotations() -> Schema:
    told = f"Annotations of the Service, such as those that a load balancer reads. Default: none. {LIVE}"
    return texts(told, 1024, ANNOTATIONS_MAX) | {
        "x-kubernetes-validations": [
            rule(
                f"!self.exists(k, k.startsWith('{GROUP}/'))",
                f"spec.proxy.service.annotations: those of {GROUP} are set by the operator",
            )
        ]
    }
