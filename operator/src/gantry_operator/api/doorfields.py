"""`spec.proxy` and `spec.queues`: fields and bounds of gRPC proxies and servers of HTTP queues; pure.

Neither field has a default: a cluster has them where they are written, and `proxy: {}` is enough.  Their own fields
have defaults, which the API server fills in once the field is there.  Only the users of HTTP queues have none: a server
without users listens on the loopback address alone, which nobody reaches in a pod.
"""

from __future__ import annotations

from gantry_operator.api.brokercluster import GROUP
from gantry_operator.api.doorspec import CLUSTER_IP, LOAD_BALANCER, NODE_PORT, PROXY, QUEUES, DoorKind
from gantry_operator.api.fields import LIVE, ROLLS, Schema, choice, number, rule, structure, without_default, words
from gantry_operator.api.podfields import Own, pod_template, resources, texts

REPLICAS, REPLICAS_MAX, WORKERS_MAX, ANNOTATIONS_MAX = 2, 100, 64, 32
OF_PROXIES = Own((PROXY.component,), ("secret", "tmp"), ("/tmp", "/etc/gantrymq"))
OF_QUEUES = Own((QUEUES.component,), ("secret",), ("/etc/gantrymq",))
_NAME = "[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_SECRET_OR_NONE, _SECRET = rf"^({_NAME})?$", rf"^{_NAME}$"


def proxy() -> Schema:
    """Return the schema of `spec.proxy`."""
    made = structure(
        "Proxies for clients that speak gRPC (RocketMQ 5), with the cluster's image. There are some where this field "
        f"is written; `{{}}` suffices. They keep no state. {LIVE}",
        {
            "replicas": _replicas("proxies"),
            "workers": number(
                "Processes in each proxy; with more of them a proxy uses more cores.", 1, 1, WORKERS_MAX, ROLLS
            ),
            "service": _service(PROXY, "the proxies"),
            "tls": structure(
                "The certificate that clients see.",
                {
                    "secretName": words(
                        "Secret of this namespace with `tls.crt` and `tls.key` (type kubernetes.io/tls). Empty: a "
                        "certificate that each proxy makes itself, which clients cannot verify. A change of the field, "
                        "or of the Secret, replaces the pods, one after the other.",
                        "",
                        253,
                        _SECRET_OR_NONE,
                    )
                },
            ),
            "podTemplate": pod_template("proxies", OF_PROXIES),
            "resources": resources("the proxy's container"),
        },
    )
    return without_default(made)


def queues() -> Schema:
    """Return the schema of `spec.queues`."""
    users = structure(
        "Who may call.",
        {
            "secretName": without_default(
                words(
                    "Secret of this namespace with `users`: a line `ID SECRET` for each user. Must be given. A change "
                    f"of the Secret takes effect within two minutes and replaces no pod. Another name: {ROLLS}",
                    "",
                    253,
                    _SECRET,
                )
            )
        },
    )
    made = structure(
        "Servers of HTTP queues in the manner of Alibaba Cloud MNS, with the cluster's image. There are some where "
        f"this field is written; `users` suffices. They keep no state, and have no TLS: an Ingress has it. {LIVE}",
        {
            "replicas": _replicas("servers"),
            "service": _service(QUEUES, "the servers"),
            "users": without_default(users) | {"required": ["secretName"]},
            "podTemplate": pod_template("servers of HTTP queues", OF_QUEUES),
            "resources": resources("the server's container"),
        },
    )
    return without_default(made) | {"required": ["users"]}


def _replicas(whose: str) -> Schema:
    return {
        "description": f"Number of {whose}. From 1 to {REPLICAS_MAX}. Without it: {REPLICAS} at first, and then as "
        "many as a HorizontalPodAutoscaler of the Deployment, or `kubectl scale`, says. A change replaces no pod.",
        "type": "integer", "minimum": 1, "maximum": REPLICAS_MAX,
    }  # fmt: skip


def _service(kind: DoorKind, whose: str) -> Schema:
    told = f"Annotations of the Service, such as those that a load balancer reads. Default: none. {LIVE}"
    not_ours = rule(
        f"!self.exists(k, k.startsWith('{GROUP}/'))",
        f"{kind.field}.service.annotations: those of {GROUP} are set by the operator",
    )
    return structure(
        f"The Service of {whose}, NAME-{kind.component}, port {kind.port}.",
        {
            "type": choice(
                "ClusterIP: for clients in this Kubernetes. NodePort, LoadBalancer: also for clients outside, so the "
                "NetworkPolicy lets everybody connect to the port.",
                [CLUSTER_IP, NODE_PORT, LOAD_BALANCER],
                CLUSTER_IP,
                LIVE,
            ),
            "annotations": texts(told, 1024, ANNOTATIONS_MAX) | {"x-kubernetes-validations": [not_ours]},
        },
    )
