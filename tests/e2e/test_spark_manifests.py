"""The manifests of spark/kubernetes and the chart's Spark jobs: in step, taken by the API server, with few rights."""

from __future__ import annotations

import re
import subprocess
import urllib.error
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.conftest import require
from e2e.test_rights import asked, may
from pyspark_gantrymq.jobs import placement
from testkit.kube import binaries, sparkmanifests, sparkoperator
from testkit.kube.api import RefusedError
from testkit.kube.controlplane import ControlPlane
from testkit.kube.sparkmanifests import CHART, EXAMPLE, FOLDER, JOBS_NAMESPACE
from testkit.pairplay import until
from testkit.sources import ROOT

USER = f"system:serviceaccount:{JOBS_NAMESPACE}:orders-spark"
CLAIM = "orders-spark"
DOES = ["/pods create get list watch delete deletecollection", "/configmaps create deletecollection"]
NEVER = [
    "/pods/exec create get",
    "/pods update patch",
    "/secrets get list watch",
    "/configmaps get list update patch",
    "/persistentvolumeclaims create list update patch delete deletecollection",
    "/services create update patch delete deletecollection",
    "/serviceaccounts/token create",
    "networking.k8s.io/networkpolicies create patch delete",
    "rbac.authorization.k8s.io/roles get create patch bind escalate",
    "gantrymq.io/brokerclusters get create patch delete",
    "sparkoperator.k8s.io/sparkapplications get create patch delete",
]


@pytest.fixture(autouse=True)
def helm() -> None:
    require("helm")


def documents(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((FOLDER / name).read_text()) if each]


def applications() -> list[dict[str, Any]]:
    """The specs of all, by schedule or not."""
    found = [each for path in sorted(FOLDER.glob("*.yaml")) for each in documents(path.name)]
    return [each["spec"].get("template", each["spec"]) for each in found if each["kind"].endswith("SparkApplication")]


def templated(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(binaries.program("helm")), "template", "orders", str(ROOT / "charts" / CHART), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_manifests_are_what_the_chart_makes_of_its_example() -> None:
    kept = {path.name: path.read_text() for path in FOLDER.glob("*.yaml")}
    assert kept == sparkmanifests.files(), "PYTHONPATH=tests python -m testkit.kube.sparkmanifests"


def test_a_chart_without_jobs_brings_nothing_of_spark() -> None:
    assert "spark" not in templated("--api-versions", "monitoring.coreos.com/v1/PodMonitor").stdout


def test_jobs_do_not_go_where_the_brokers_are() -> None:
    done = templated("--namespace", "messaging", "--set", "spark.namespace=messaging", "-f", str(EXAMPLE))
    assert done.returncode != 0 and "a driver may delete every pod of its namespace" in done.stderr


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("spark.jobs[0].job=sort", "/spark/jobs/0/job"),
        ("spark.jobs[0].name=Orders", "/spark/jobs/0/name"),
        ("spark.jobs[0].replicas=2", "replicas"),
        ("spark.jobs[0].executors=0", "/spark/jobs/0/executors"),
        ("spark.jobs[0].secrets.PGPASSWORD.name=x", "key"),
        ("spark.volume.accessMode=ReadOnlyMany", "/spark/volume/accessMode"),
        ("spark.monitoring.interval=often", "/spark/monitoring/interval"),
        ("spark.images=x", "images"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_by_its_name(flag: str, said: str) -> None:
    done = templated("-f", str(EXAMPLE), "--set", flag)
    assert done.returncode != 0 and said in done.stderr, done.stderr


def test_a_stream_is_started_again_for_ever_a_batch_a_few_times_and_a_schedule_is_its_own_retry() -> None:
    policies = {each["mainApplicationFile"]: each["restartPolicy"] for each in applications()}
    kinds = {Path(path).stem: policy["type"] for path, policy in policies.items()}
    assert kinds == {"archive": "Always", "idempotent": "OnFailure", "audit": "Never"}
    # Without a number of retries the operator retries never.
    (once,) = (each for each in policies.values() if each["type"] == "OnFailure")
    assert once["onFailureRetries"] == 3 and once["onSubmissionFailureRetries"] == 3


@pytest.mark.parametrize(
    ("argument", "policy"),
    [
        ("--every=30", "Always"),
        ("--once", "OnFailure"),
        ("--void=id-1", "OnFailure"),
        ("--show-for-a-person", "OnFailure"),
    ],
)
def test_resend_is_started_again_for_ever_unless_it_ends_by_itself(argument: str, policy: str) -> None:
    done = templated("-f", str(EXAMPLE), "--set", f"spark.jobs[0].job=resend,spark.jobs[0].arguments={{{argument}}}")
    (found,) = (
        each["spec"]
        for each in yaml.safe_load_all(done.stdout)
        if each and each["kind"] == "SparkApplication" and each["spec"]["mainApplicationFile"].endswith("/resend.py")
    )
    assert found["restartPolicy"]["type"] == policy


def test_the_programs_of_the_manifests_are_jobs_and_know_their_arguments() -> None:
    for each in applications():
        program = ROOT / "spark/src/pyspark_gantrymq" / each["mainApplicationFile"].removeprefix("local:///opt/gantrymq/")
        assert program.is_file()
        # Of the source: Spark, which a job imports, is not here.
        source = program.read_text() + program.with_name("launch.py").read_text()
        known = set(re.findall(r'"(--[a-z-]+)"', source))
        given = {word.partition("=")[0] for word in each["arguments"] if word.startswith("--")}
        assert given and given <= known, f"{program.name} does not know {', '.join(sorted(given - known))}"


def test_a_password_is_a_reference_in_every_pod_that_needs_it_and_nowhere_else() -> None:
    (revenue,) = (each for each in applications() if "idempotent" in each["mainApplicationFile"])
    for role in ("driver", "executor"):
        assert revenue[role]["envSecretKeyRefs"] == {"PGPASSWORD": {"name": "revenue-database", "key": "password"}}
    assert not any("PASS" in str(each).upper() for each in (revenue["arguments"], revenue["sparkConf"]))


def test_prometheus_is_told_the_port_and_the_paths_that_drivers_serve() -> None:
    (monitor,) = documents("monitor.yaml")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    paths = {each["path"] for each in monitor["spec"]["podMetricsEndpoints"]}
    assert {each["port"] for each in monitor["spec"]["podMetricsEndpoints"]} == {"spark-ui"}
    for each in applications():
        said, told = each["sparkConf"], each["driver"]["annotations"]
        served = said["spark.metrics.conf.*.sink.prometheusServlet.path"]
        assert served == told["prometheus.io/path"] and paths == {served, "/metrics/executors/prometheus"}
        assert {**each["driver"]["labels"], "spark-role": "driver"} == wanted


@pytest.fixture(scope="module")
def home(plane: ControlPlane) -> ControlPlane:
    """The namespace of the jobs, with what they need there."""
    plane.admin.apply(f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {JOBS_NAMESPACE}}}}}")
    for name in ("rights.yaml", "volume.yaml"):
        plane.admin.apply((FOLDER / name).read_text())
    until(lambda: may(plane, USER, JOBS_NAMESPACE, next(asked(DOES))), "the role is in force")
    return plane


def test_a_driver_may_make_and_end_its_executors_see_its_volume_and_no_more(home: ControlPlane) -> None:
    for what in asked(DOES):
        assert may(home, USER, JOBS_NAMESPACE, what), what
    for what in asked(NEVER):
        assert not may(home, USER, JOBS_NAMESPACE, what), what
    claim = ("", "persistentvolumeclaims", "get")
    assert may(home, USER, JOBS_NAMESPACE, claim, CLAIM) and not may(home, USER, JOBS_NAMESPACE, claim, "other")
    for what in asked(DOES):
        assert not may(home, USER, "messaging", what), what


def driver_and_executor(namespace: str, node: str) -> list[dict[str, Any]]:
    """Pods as Spark makes them, as far as it matters here; the executor is on `node`."""
    made = []
    for name, where, role in (("d", "node1", "driver"), ("e", node, "executor")):
        labels = {"spark-app-selector": f"of-{node}", "spark-role": role}
        volume = {"name": "work", "persistentVolumeClaim": {"claimName": CLAIM}}
        spec = {"nodeName": where, "volumes": [volume], "serviceAccountName": CLAIM}
        spec["containers"] = [{"name": "spark", "image": "none"}]
        about = {"name": f"{name}-{node}", "namespace": namespace, "labels": labels}
        made.append({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
    return made


@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadWriteMany"])
def test_a_job_asks_with_its_own_rights_where_its_executors_are(plane: ControlPlane, tmp_path: Path, mode: str) -> None:
    namespace = f"spark-{mode.lower()}"
    plane.admin.apply(f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}")
    for name in ("rights.yaml", "volume.yaml"):
        text = (FOLDER / name).read_text().replace('namespace: "spark"', f"namespace: {namespace}")
        plane.admin.apply(text.replace("[ReadWriteMany]", f"[{mode}]"))
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/{CLAIM}/token"
    (tmp_path / "token").write_text(plane.admin.create(account, wanted)["status"]["token"])
    (tmp_path / "ca.crt").write_bytes(plane.authority.certificate.read_bytes())
    api = placement.Api(plane.server, tmp_path)
    for node in ("node1", "node2"):
        plane.admin.apply(yaml.safe_dump_all(driver_and_executor(namespace, node)))
        driver = placement.Driver(namespace, f"d-{node}", f"of-{node}", executors=1)
        until(lambda: may_look(api, driver), "the role is in force")  # noqa: B023
        if (node, mode) == ("node2", "ReadWriteOnce"):
            with pytest.raises(placement.PlacementError, match="e-node2 is on node node2 while the driver is on node"):
                placement.look(api, driver)
        else:
            placement.look(api, driver)


def may_look(api: placement.Api, driver: placement.Driver) -> bool:
    """403 for a moment, until the server has read the role."""
    try:
        return bool(api.get(f"/api/v1/namespaces/{driver.namespace}/persistentvolumeclaims/{CLAIM}"))
    except urllib.error.HTTPError as error:
        assert error.code == 403, error
        return False


@pytest.mark.slow
@pytest.mark.parametrize("name", ["archive.yaml", "revenue.yaml", "audit.yaml"])
def test_the_kinds_of_the_spark_operator_know_every_field_of_the_manifests(home: ControlPlane, name: str) -> None:
    require(sparkoperator.CHART)
    for text in sparkoperator.definitions():
        home.admin.apply(text)
    text = (FOLDER / name).read_text()
    until(lambda: is_served(home, text), "the kinds are served")
    for wanted in documents(name):
        path = f"{home.admin.folder(wanted)}?fieldValidation=Strict&dryRun=All"
        assert home.admin.create(path, wanted)["spec" if "spec" in wanted else "data"]


def is_served(plane: ControlPlane, text: str) -> bool:
    try:
        return bool(plane.admin.apply(text, is_rehearsal=True))
    except (KeyError, RefusedError):
        return False
