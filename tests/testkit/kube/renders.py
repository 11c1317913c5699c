"""What helm makes of each chart with some values, kept in tests/e2e/renders so that a change of a template is seen.

`PYTHONPATH=tests python -m testkit.kube.renders` writes them again; dashboards are left out, they are long and have a
test of their own.
"""

from __future__ import annotations

from typing import NamedTuple

from testkit.kube.registers import NAMESPACE, rendered
from testkit.sources import ROOT

FOLDER = ROOT / "tests/e2e/renders"
_PLAIN = ("--namespace", NAMESPACE)
_AFFINITY = '{"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}'
_SPREAD = '[{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}]'
_WITHOUT = ("--set", "monitoring.dashboards=false")


class Render(NamedTuple):
    """One chart with these flags."""

    chart: str
    flags: tuple[str, ...] = ()

    def words(self) -> tuple[str, ...]:
        """Of `helm template`, behind the chart."""
        return (*_PLAIN, *(_WITHOUT if self.chart == "gantrymq" else ()), *self.flags)

    def text(self) -> str:
        """As helm writes it."""
        return rendered(self.chart, *self.words())


FOREIGN = ("operator-with-rules", "operator-with-monitors")  # kinds that a bare API server does not know
ALL = {
    "operator": Render("gantrymq"),
    "operator-of-two-namespaces": Render(
        "gantrymq", ("--set", "watch.scope=many,watch.namespaces={one,two}", "--set", "operator.replicas=1")
    ),
    "operator-placed": Render(
        "gantrymq",
        (
            *("--set", "operator.image.digest=sha256:6bb891430fb6e2d3b4db41fd1f7ece08c5fc09ee6ed8bf7f8be1ac5ee61c3d6b"),
            *("--set", "operator.podLabels.team=mq,operator.podAnnotations.note=x,operator.nodeSelector.disk=ssd"),
            *("--set", "operator.logLevel=debug,operator.priorityClassName=high,operator.brokerFsGroup=1000650000"),
            *("--set", "operator.imagePullSecrets[0].name=regcred,operator.tolerations[0].operator=Exists"),
            *("--set-json", f"operator.affinity={_AFFINITY}"),
            *("--set-json", f"operator.topologySpreadConstraints={_SPREAD}"),
            *("--set-json", 'operator.extraEnv=[{"name": "TZ", "value": "UTC"}]'),
            *("--set", "operator.extraArgs={--log-level=warning,--identity=first}"),
            *("--show-only", "templates/operator.yaml"),
        ),
    ),
    "operator-with-rules": Render(
        "gantrymq",
        (
            *("--api-versions", "monitoring.coreos.com/v1/PrometheusRule"),
            *("--set", "monitoring.alertLabels.release=prometheus", "--show-only", "templates/alerts.yaml"),
        ),
    ),
    "operator-with-monitors": Render(
        "gantrymq",
        (
            *("--api-versions", "monitoring.coreos.com/v1/PodMonitor"),
            *("--set", "watch.scope=many,watch.namespaces={one}"),
            *("--set", "monitoring.podMonitorLabels.release=prometheus", "--show-only", "templates/monitors.yaml"),
        ),
    ),
    "cluster": Render("gantrymq-cluster"),
    "cluster-of-three-groups": Render(
        "gantrymq-cluster",
        (
            *("--set", "name=orders,labels.team=payments,cluster.brokers.groups=3,cluster.brokers.profile=replicated"),
            *("--set", "cluster.brokers.storage.size=1Ti,cluster.brokers.antiAffinity=Required"),
            *("--set-string", "cluster.brokers.config.permission=6"),
            *("--set", "topics[0].name=tea,topics[0].queues.write=16,topics[0].queues.read=16,topics[1].name=orders"),
            *("--set", "consumerGroups[0].name=shop"),
        ),
    ),
    "cluster-with-proxies": Render(
        "gantrymq-cluster",
        (
            *("--set", "name=orders,cluster.proxy.replicas=3,cluster.proxy.workers=2"),
            *("--set", "cluster.proxy.tls.secretName=shop"),
            *("--set", "cluster.proxy.service.type=LoadBalancer,cluster.proxy.service.annotations.lb=inner"),
            *("--set", "cluster.proxy.resources.requests.cpu=1,cluster.proxy.podTemplate.nodeSelector.disk=ssd"),
            *("--show-only", "templates/cluster.yaml"),
        ),
    ),
    "cluster-with-queues": Render(
        "gantrymq-cluster",
        (
            *("--set", "name=orders,cluster.queues.replicas=3,cluster.queues.users.secretName=callers"),
            *("--set", "cluster.queues.service.annotations.lb=inner,cluster.queues.resources.requests.cpu=1"),
            *("--show-only", "templates/cluster.yaml"),
        ),
    ),
}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, render in ALL.items():
        (FOLDER / f"{name}.yaml").write_text(render.text())
