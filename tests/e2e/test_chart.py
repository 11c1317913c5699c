"""The charts as helm sees them: they lint, refuse what they do not know, and render what their values say."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from e2e.conftest import require
from gantry_operator import definitions
from gantry_operator.api import values
from gantry_operator.api.brokercluster import Image
from gantry_operator.desired import brokers, nameservers
from gantry_operator.settings import from_environment, with_options
from testkit.kube import binaries, monitoringkinds, renders, sparkmanifests
from testkit.kube import clusters as bare
from testkit.kube.api import RefusedError
from testkit.kube.controlplane import ControlPlane
from testkit.kube.registers import rendered
from testkit.kube.sparkmanifests import JOBS_NAMESPACE as SPARKS
from testkit.pairplay import until
from testkit.sources import ROOT

CHARTS = ROOT / "charts"
CHART = CHARTS / "gantrymq"
NAMES = ("gantrymq", "gantrymq-cluster")


@pytest.fixture(autouse=True)
def helm() -> None:
    require("helm")


def helmed(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(binaries.program("helm")), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("name", NAMES)
def test_helm_finds_nothing_to_complain_about(name: str) -> None:
    done = helmed("lint", "--strict", str(CHARTS / name))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "flag", "said"),
    [
        ("gantrymq", "admissionPolicy.enabled=perhaps", "/admissionPolicy/enabled"),
        ("gantrymq", "admissionPolicies.enabled=true", "admissionPolicies"),
        ("gantrymq", "operator.replicas=0", "/operator/replicas"),
        ("gantrymq", "operator.imagePullPolicy=Sometimes", "/operator/imagePullPolicy"),
        ("gantrymq", "operator.logLevel=loud", "/operator/logLevel"),
        ("gantrymq", "operator.brokerFsGroup=staff", "/operator/brokerFsGroup"),
        ("gantrymq", "operator.podLabel.team=mq", "podLabel"),
        ("gantrymq", "operator.affinity.zoneAffinity=x", "zoneAffinity"),
        ("gantrymq", "operator.topologySpreadConstraints[0].maxSkew=1", "topologyKey"),
        ("gantrymq", "operator.extraEnv[0].value=x", "name"),
        ("gantrymq", "operator.extraArgs=--log-level=debug", "/operator/extraArgs"),
        ("gantrymq", "operator.extraArgs[0]=7", "/operator/extraArgs/0"),
        ("gantrymq-cluster", "spark.image.tag=:1", "/spark/image/tag"),
        ("gantrymq-cluster", "test.image.repository=", "/test/image/repository"),
        ("gantrymq", "watch.scope=many,watch.namespaces={one,one}", "/watch/namespaces"),
        ("gantrymq", "watch.scope=few", "/watch/scope"),
        ("gantrymq", "watch.scope=many", "watch.namespaces names none"),
        ("gantrymq", "watch.namespaces={one}", "only with watch.scope=many"),
        ("gantrymq", "rights.aggregate=some", "/rights/aggregate"),
        ("gantrymq", "crds.upgrade=always", "/crds/upgrade"),
        ("gantrymq", "rollout.onOperatorUpgrade=Some", "/rollout/onOperatorUpgrade"),
        ("gantrymq", "operator.image.tag=not a tag", "/operator/image/tag"),
        ("gantrymq", "operator.brokerImage.name=x", "/operator/brokerImage"),
        ("gantrymq", "monitoring.interval=often", "/monitoring/interval"),
        ("gantrymq", "monitoring.dashboardLabels.grafana=1", "/monitoring/dashboardLabels"),
        ("gantrymq-cluster", "name=Orders", "/name"),
        ("gantrymq-cluster", "clusters.image=x", "clusters"),
        ("gantrymq-cluster", "cluster.brokers.gruops=2", "gruops"),
        ("gantrymq-cluster", "cluster.brokers.groups=0", "/cluster/brokers/groups"),
        ("gantrymq-cluster", "cluster.brokers.profile=safe", "/cluster/brokers/profile"),
        ("gantrymq-cluster", "cluster.brokers.storage.size=large", "/cluster/brokers/storage/size"),
        ("gantrymq-cluster", "cluster.proxy.replicas=0", "/cluster/proxy/replicas"),
        ("gantrymq-cluster", "cluster.proxy.workers=many", "/cluster/proxy/workers"),
        ("gantrymq-cluster", "cluster.proxy.service.type=Ingress", "/cluster/proxy/service/type"),
        ("gantrymq-cluster", "cluster.proxy.tls.secretName=My_Secret", "/cluster/proxy/tls/secretName"),
        ("gantrymq-cluster", "cluster.proxy.image=x", "image"),
        ("gantrymq-cluster", "cluster.queues.replicas=2", "users"),
        ("gantrymq-cluster", "cluster.queues.users.secretName=My_Secret", "/cluster/queues/users/secretName"),
        ("gantrymq-cluster", "topics[0].queues.write=2", "name"),
        ("gantrymq-cluster", "topics[0].name=Tea", "/topics/0/name"),
        ("gantrymq-cluster", "topics[0].name=tea,topics[0].clusterRef.name=other", "clusterRef"),
        ("gantrymq-cluster", "consumerGroups[0].name=shop,consumerGroups[0].retries=1", "retries"),
        ("gantrymq-cluster", "cluster.brokers.config.permission=6", "/cluster/brokers/config/permission"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_by_its_name(name: str, flag: str, said: str) -> None:
    done = helmed("template", name, str(CHARTS / name), "--set", flag)
    assert done.returncode != 0 and said in done.stderr, done.stderr


@pytest.mark.parametrize("name", renders.ALL)
def test_a_chart_renders_what_was_looked_at(name: str) -> None:
    kept = renders.FOLDER / f"{name}.yaml"
    assert kept.read_text() == renders.ALL[name].text(), "PYTHONPATH=tests python -m testkit.kube.renders"


def test_the_values_of_a_cluster_are_those_of_the_definition() -> None:
    assert (CHARTS / "gantrymq-cluster" / values.FILE).read_text() == values.text(), "make crds"


def test_the_chart_has_the_definitions_that_the_operator_brings() -> None:
    names = {each["metadata"]["name"] for each in definitions.ALL}
    assert {yaml.safe_load(path.read_text())["metadata"]["name"] for path in (CHART / "crds").iterdir()} == names


@pytest.mark.parametrize("name", renders.ALL)
def test_the_api_server_takes_what_a_chart_renders(plane: ControlPlane, name: str) -> None:
    if name in renders.FOREIGN:
        require(monitoringkinds.KINDS)
    kinds = monitoringkinds.definitions() if name in renders.FOREIGN else []
    for text in (*kinds, *(path.read_text() for path in (CHART / "crds").iterdir())):
        plane.admin.apply(text)
    for namespace in ("one", "two"):
        plane.admin.apply(f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}")
    text = renders.ALL[name].text()
    until(lambda: is_taken(plane, text), f"{name} is taken")


def test_the_api_server_takes_the_monitor_of_sparks_jobs_and_no_field_that_it_does_not_know(
    plane: ControlPlane,
) -> None:
    require(monitoringkinds.KINDS)
    for text in (*monitoringkinds.definitions(), f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {SPARKS}}}}}"):
        plane.admin.apply(text)
    text = sparkmanifests.files()["monitor.yaml"]
    until(lambda: is_taken(plane, text), "the monitor is taken")
    with pytest.raises(RefusedError, match="interwal"):
        plane.admin.apply(text.replace("interval:", "interwal:"), is_rehearsal=True)


def is_taken(plane: ControlPlane, text: str) -> bool:
    """Refusals count; a kind that the server does not serve yet is asked for again."""
    try:
        plane.admin.apply(text, is_rehearsal=True)
    except (KeyError, RefusedError) as error:
        if isinstance(error, RefusedError) and error.status != 404:
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("flag", "reference"),
    [
        ("operator.replicas=2", "docker.io/gantrymq/operator:APP"),
        ("operator.image.repository=registry:5000/op", "registry:5000/op:APP"),
        ("operator.image.tag=v7", "docker.io/gantrymq/operator:v7"),
        (f"operator.image.digest=sha256:{'a' * 64}", f"docker.io/gantrymq/operator@sha256:{'a' * 64}"),
        (f"operator.image.tag=v7,operator.image.digest=sha256:{'a' * 64}",
         f"docker.io/gantrymq/operator:v7@sha256:{'a' * 64}"),
        ("operator.image=registry:5000/op:1", "registry:5000/op:1"),
    ],
)  # fmt: skip
def test_an_image_is_of_the_charts_version_unless_a_value_says_otherwise(
    flag: str, reference: str, tmp_path: Path
) -> None:
    """Also of a chart whose version has moved on; a reference in one string is what values of 0.1.0 were."""
    chart = tmp_path / "gantrymq"
    shutil.copytree(CHART, chart)
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about | {"version": "9.8.7", "appVersion": "9.8.7"}))
    done = helmed("template", "gantrymq", str(chart), "--set", flag)
    assert done.returncode == 0, done.stderr
    made = [each for each in yaml.safe_load_all(done.stdout) if each and each["kind"] in ("Deployment", "Job")]
    containers = [pod for each in made for pod in each["spec"]["template"]["spec"]["containers"]]
    assert {each["image"] for each in containers} == {reference.replace("APP", "9.8.7")} and len(made) == 3
    said = [env["value"] for each in containers for env in each.get("env", []) if env["name"].endswith("BROKER_IMAGE")]
    assert set(said) == {"docker.io/gantrymq/broker:9.8.7"}


def test_arguments_reach_the_operator_which_takes_them_over_what_values_say() -> None:
    flags = ("--set", "operator.logLevel=error,operator.extraArgs={--log-level=debug}")
    made = [each for each in yaml.safe_load_all(rendered("gantrymq", *flags)) if each]
    (operator,) = (each["spec"]["template"]["spec"]["containers"][0] for each in made if each["kind"] == "Deployment")
    environment = {each["name"]: each.get("value", "") for each in operator["env"]}
    assert environment["GANTRY_OPERATOR_LOG_LEVEL"] == "error"
    assert from_environment(with_options(environment, operator["args"])).log_level == logging.DEBUG
    jobs = [each["spec"]["template"]["spec"]["containers"][0] for each in made if each["kind"] == "Job"]
    assert "command" not in operator and len(jobs) == 2 and not [each for each in jobs if "args" in each]


def test_the_admission_policy_is_a_choice() -> None:
    policy = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert policy <= kinds()
    assert not policy & kinds("--set", "admissionPolicy.enabled=false")


def test_rights_are_as_wide_as_what_is_watched() -> None:
    assert {"ClusterRole", "ClusterRoleBinding"} <= kinds()
    assert "ClusterRoleBinding" in kinds()
    for scope in ("watch.scope=many,watch.namespaces={one,two},rights.aggregate=false", "watch.scope=one"):
        narrow = kinds("--set", f"{scope},crds.upgrade=false")
        assert {"Role", "RoleBinding"} <= narrow and not {"ClusterRole", "ClusterRoleBinding"} & narrow, scope


def test_dashboards_are_there_for_grafana_and_alerts_where_the_cluster_knows_rules() -> None:
    made = [each for each in yaml.safe_load_all(rendered("gantrymq")) if each and each["kind"] == "ConfigMap"]
    boards = [each for each in made if each["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert len(boards) == len(list((CHART / "dashboards").iterdir()))
    assert all(json.loads(text)["uid"] for each in boards for text in each["data"].values())
    assert "PrometheusRule" not in kinds()
    assert "PrometheusRule" in kinds("--api-versions", "monitoring.coreos.com/v1/PrometheusRule")
    assert "ConfigMap" not in kinds("--set", "monitoring.dashboards=false")


def test_pods_are_monitored_where_the_cluster_knows_monitors_and_that_is_wanted() -> None:
    knows = ("--api-versions", "monitoring.coreos.com/v1/PodMonitor")
    assert "PodMonitor" not in kinds() and "PodMonitor" in kinds(*knows)
    assert "PodMonitor" not in kinds(*knows, "--set", "monitoring.podMonitors=false")


def test_a_monitor_names_the_port_and_the_labels_that_pods_have() -> None:
    knows = ("--api-versions", "monitoring.coreos.com/v1/PodMonitor")
    text = rendered("gantrymq", *knows, "--show-only", "templates/monitors.yaml")
    clusters, operator = (each for each in yaml.safe_load_all(text) if each)
    wanted, image = bare.cluster(), Image("image:1", "IfNotPresent", ())
    objects = [*nameservers.objects(wanted, image)]
    objects += brokers.objects(next(iter(wanted.groups())), image, brokers.Shape(wanted.brokers.replicas))
    pods = [each["spec"]["template"] for each in objects if each["kind"] == "StatefulSet"]
    assert len(pods) == 2
    for pod in pods:
        for wanted in clusters["spec"]["selector"]["matchExpressions"]:
            value = pod["metadata"]["labels"][wanted["key"]]
            assert wanted["operator"] == "Exists" or value in wanted["values"]
        ports = {port["name"] for each in pod["spec"]["containers"] for port in each["ports"]}
        assert {each["port"] for each in clusters["spec"]["podMetricsEndpoints"]} <= ports
    assert operator["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] == "gantrymq"


def kinds(*flags: str) -> set[str]:
    return {each["kind"] for each in yaml.safe_load_all(rendered("gantrymq", *flags)) if each}
