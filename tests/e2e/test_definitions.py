"""An upgrade on an API server without nodes: helm from an older chart, and what the chart's Job does to the kinds."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from e2e.conftest import require
from gantry_operator.api import schema
from testkit.kube import binaries, olderkinds, upgrading
from testkit.kube.api import RefusedError
from testkit.kube.controlplane import ADMIN_TOKEN, ControlPlane
from testkit.kube.registers import NAMESPACE, fresh_name, prepare, rendered
from testkit.pairplay import until
from testkit.sources import ROOT

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLUSTERS = f"/apis/gantrymq.io/v1alpha1/namespaces/{NAMESPACE}/brokerclusters"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
HOME, ACCOUNT, RELEASED = "default", "gantrymq-crds", "released"
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A server with the account of the Job and nothing else of the chart's.

    Its own: a kind that is deleted here takes its objects with it, and waits for ever for one with a finalizer.
    """
    require("etcd", "kube-apiserver", "helm")
    text = rendered("gantrymq", "-s", "templates/definitions.yaml")
    rights = [each for each in yaml.safe_load_all(text) if each and each["kind"] in RIGHTS]
    with ControlPlane(tmp_path_factory.mktemp("definitions")) as running:
        prepare(running)
        running.admin.apply(yaml.safe_dump_all(rights))
        yield running


def run(
    plane: ControlPlane, folder: Path, account: str = ACCOUNT, home: str = HOME
) -> subprocess.CompletedProcess[str]:
    """What the Job runs, as this account."""
    path = f"/api/v1/namespaces/{home}/serviceaccounts/{account}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    (folder / "token").write_text(str(plane.admin.create(path, asked)["status"]["token"]))
    (folder / "ca.crt").write_bytes(plane.authority.certificate.read_bytes())
    (folder / "namespace").write_text(home)
    address = urlsplit(plane.server)
    environment = os.environ | {
        "KUBERNETES_SERVICE_HOST": str(address.hostname),
        "KUBERNETES_SERVICE_PORT": str(address.port),
        "GANTRY_OPERATOR_ACCOUNT": str(folder),
    }
    command = [sys.executable, "-m", "gantry_operator.definitions"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)


def put(plane: ControlPlane, definition: dict[str, Any]) -> None:
    """As helm makes it: created, or replaced as a whole; again where the server wrote its status meanwhile."""
    name = definition["metadata"]["name"]
    document = copy.deepcopy(definition)

    def is_put() -> bool:
        try:
            found = plane.admin.get(f"{DEFINITIONS}/{name}")
        except RefusedError:
            plane.admin.create(DEFINITIONS, definition)
            return True
        document["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        try:
            plane.admin.ask("PUT", f"{DEFINITIONS}/{name}", document)
        except RefusedError as error:
            if error.status != 409:
                raise
            return False
        return True

    until(is_put, "the definition is written")


def cluster(spec: dict[str, Any]) -> dict[str, Any]:
    kind = {"apiVersion": "gantrymq.io/v1alpha1", "kind": "BrokerCluster"}
    return kind | {"metadata": {"name": fresh_name(), "namespace": NAMESPACE}, "spec": spec}


def is_served(plane: ControlPlane, holds: dict[str, Any], lacks: str) -> bool:
    """Whether a new object keeps one field and loses another; a server takes a moment to follow a definition."""
    try:
        made = plane.admin.create(CLUSTERS, cluster({**holds, lacks: "x"}))["spec"]
    except RefusedError:
        return False
    return holds.items() <= made.items() and lacks not in made


def test_fields_and_rules_come_and_go_and_objects_stay(job: ControlPlane, tmp_path: Path) -> None:
    before = olderkinds.definition()
    put(job, before)
    until(lambda: is_served(job, {olderkinds.GONE: "kept"}, olderkinds.NEW), "the older kind is served")
    old = job.admin.create(CLUSTERS, cluster(olderkinds.REFUSED_LATER | {olderkinds.GONE: "kept"}))
    done = run(job, tmp_path)
    assert done.returncode == 0, done.stderr
    until(lambda: is_served(job, {olderkinds.NEW: "broker:2"}, olderkinds.GONE), "the new kind is served")
    with pytest.raises(RefusedError, match="so that writing goes on when one is lost"):
        job.admin.create(CLUSTERS, cluster(olderkinds.REFUSED_LATER))
    kept = job.admin.get(f"{CLUSTERS}/{old['metadata']['name']}")
    assert kept["metadata"]["uid"] == old["metadata"]["uid"]
    found = job.admin.get(f"{DEFINITIONS}/{before['metadata']['name']}")
    assert found["spec"]["versions"][0]["schema"] == served_schema(job)


def helm(plane: ControlPlane, *words: str) -> str:
    """Hooks are left out: no Job runs here."""
    authority = str(plane.authority.folder / "ca.crt")
    where = ["--kube-apiserver", plane.server, "--kube-token", ADMIN_TOKEN, "--kube-ca-file", authority]
    command = [str(binaries.program("helm")), *words, "--namespace", RELEASED, *where]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_documented_line_brings_images_and_kinds_of_the_new_chart(job: ControlPlane, tmp_path: Path) -> None:
    line = upgrading.line().split()
    flags = line[line.index("gantrymq-system") + 1 :]
    former, newer = upgrading.chart(tmp_path / "former", "0.0.9"), ROOT / "charts" / "gantrymq"
    version = yaml.safe_load((newer / "Chart.yaml").read_text())["appVersion"]
    path = f"{DEFINITIONS}/{olderkinds.definition()['metadata']['name']}"
    if not is_gone(job, path):
        job.admin.delete(path)
    until(lambda: is_gone(job, path), "the kind is gone")
    job.admin.apply(f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {RELEASED}}}}}")
    kept = ["--set", "operator.replicas=1,monitoring.dashboards=false"]
    helm(job, "install", "former", str(former), "--no-hooks", *kept)
    assert running(job) == ("docker.io/gantrymq/operator:0.0.9", "docker.io/gantrymq/broker:0.0.9", 1)
    helm(job, "upgrade", "former", str(newer), "--no-hooks", *flags)
    assert running(job) == (f"docker.io/gantrymq/operator:{version}", f"docker.io/gantrymq/broker:{version}", 1)
    hooks = [each for each in yaml.safe_load_all(helm(job, "get", "hooks", "former")) if each]
    (hook,) = (each for each in hooks if each["metadata"]["name"] == "former-gantrymq-crds" and each["kind"] == "Job")
    assert hook["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    (container,) = hook["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["command"]) == (running(job)[0], ["gantry-operator-definitions"])
    job.admin.apply(yaml.safe_dump_all([each for each in hooks if each["kind"] in RIGHTS]))
    done = run(job, tmp_path, "former-gantrymq-crds", RELEASED)
    assert done.returncode == 0, done.stderr
    until(lambda: is_served(job, {olderkinds.NEW: "broker:2"}, olderkinds.GONE), "the new kind is served")
    helm(job, "uninstall", "former", "--no-hooks")
    helm(job, "install", "former", str(newer), "--no-hooks", *kept)  # over the kinds that the Job brought
    helm(job, "uninstall", "former", "--no-hooks")


def running(plane: ControlPlane) -> tuple[str, str, int]:
    """Images of the operator and of brokers, and how many replicas."""
    spec = plane.admin.get(f"/apis/apps/v1/namespaces/{RELEASED}/deployments/former-gantrymq")["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    brokers = next(each["value"] for each in container["env"] if each["name"] == "GANTRY_OPERATOR_BROKER_IMAGE")
    return container["image"], brokers, spec["replicas"]


def served_schema(plane: ControlPlane) -> dict[str, Any]:
    """Ours, as the server writes it."""
    name = schema.definition()["metadata"]["name"]
    answer = plane.admin.ask(
        "PATCH",
        f"{DEFINITIONS}/{name}?fieldManager=other&force=true&dryRun=All",
        schema.definition(),
        "application/apply-patch+yaml",
    )
    found: dict[str, Any] = answer["spec"]["versions"][0]["schema"]
    return found


def test_a_definition_that_is_not_there_is_made_and_a_second_run_changes_nothing(
    job: ControlPlane, tmp_path: Path
) -> None:
    name = schema.definition()["metadata"]["name"]
    put(job, schema.definition())
    job.admin.delete(f"{DEFINITIONS}/{name}")
    until(lambda: is_gone(job, f"{DEFINITIONS}/{name}"), "the kind is gone")
    assert run(job, tmp_path).returncode == 0
    first = job.admin.get(f"{DEFINITIONS}/{name}")["metadata"]["generation"]
    assert run(job, tmp_path).returncode == 0
    assert job.admin.get(f"{DEFINITIONS}/{name}")["metadata"]["generation"] == first


def is_gone(plane: ControlPlane, path: str) -> bool:
    try:
        plane.admin.get(path)
    except RefusedError as error:
        return error.status == 404
    return False


@pytest.mark.parametrize(
    ("group", "resource", "name", "verb", "may"),
    [
        ("apiextensions.k8s.io", "customresourcedefinitions", "brokerclusters.gantrymq.io", "patch", True),
        ("apiextensions.k8s.io", "customresourcedefinitions", "brokerclusters.gantrymq.io", "delete", False),
        ("apiextensions.k8s.io", "customresourcedefinitions", "others.example.com", "patch", False),
        ("apiextensions.k8s.io", "customresourcedefinitions", "others.example.com", "get", False),
        ("gantrymq.io", "brokerclusters", "orders", "get", False),
        ("", "secrets", "orders-ha", "get", False),
    ],
)
def test_the_account_of_the_job_may_do_nothing_else(
    job: ControlPlane, group: str, resource: str, name: str, verb: str, may: bool
) -> None:
    attributes = {"namespace": NAMESPACE, "group": group, "resource": resource, "name": name, "verb": verb}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    spec = {"user": f"system:serviceaccount:{HOME}:{ACCOUNT}", "resourceAttributes": attributes}
    assert job.admin.create(REVIEWS, review | {"spec": spec})["status"]["allowed"] is may


def test_without_rights_it_says_so(plane: ControlPlane, tmp_path: Path) -> None:
    plane.admin.apply(f"{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: nobody, namespace: {HOME}}}}}")
    done = run(plane, tmp_path, "nobody")
    assert done.returncode == 1
    assert "403" in done.stderr and "brokerclusters.gantrymq.io" in done.stderr and "Traceback" not in done.stderr
