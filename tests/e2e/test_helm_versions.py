"""The oldest helm that the charts promise to work with, and the newest helm 3: both charts and the upgrade.

`helm template` of an old helm thinks of the Kubernetes of its own day, which is older than the charts want; so it is
told which one is meant, as people have to (charts/gantrymq/README.md).
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.conftest import require
from e2e.test_definitions import DEFINITIONS, RELEASED, is_served, put, run, running
from testkit.kube import binaries, olderkinds, renders, upgrading
from testkit.kube.api import Document
from testkit.kube.controlplane import ADMIN_TOKEN, ControlPlane
from testkit.kube.registers import prepare
from testkit.pairplay import until
from testkit.sources import ROOT

# What helm 3.14 and helm 4 can, the versions between them can hardly lack, so the newest helm 3 is tried less often.
HELMS = ["helm-3.14", pytest.param("helm-3", marks=pytest.mark.slow)]
KUBERNETES = ("--kube-version", binaries.KUBERNETES)
CHARTS = ROOT / "charts"
JOBS = f"/apis/batch/v1/namespaces/{RELEASED}/jobs"
ENDED = "2030-01-01T00:00:00Z"


@pytest.fixture(params=HELMS)
def helm(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    require(name)
    return name


def done(helm: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(binaries.program(helm)), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)


def documents(text: str) -> list[str]:
    """In an order of their own: helm 3 and 4 sort hooks differently."""
    return sorted(yaml.safe_dump(each) for each in yaml.safe_load_all(text) if each)


def test_it_says_its_version(helm: str) -> None:
    said = done(helm, "version", "--template", "{{.Version}}").stdout
    assert said.startswith(f"v{helm.removeprefix('helm-')}.")


@pytest.mark.parametrize("chart", ["gantrymq", "gantrymq-cluster"])
def test_it_finds_nothing_to_complain_about_and_refuses_a_value_by_its_name(helm: str, chart: str) -> None:
    linted = done(helm, "lint", "--strict", str(CHARTS / chart))
    assert linted.returncode == 0, linted.stdout + linted.stderr
    for flag, said in {
        "gantrymq": [("operator.replicas=0", "replicas"), ("operator.podLabel.team=mq", "podLabel"),
                     ("operator.image.tag=not a tag", "tag"), ("operator.brokerFsGroup=staff", "brokerFsGroup")],
        "gantrymq-cluster": [("cluster.brokers.gruops=2", "gruops"), ("topics[0].name=Tea", "topics.0.name"),
                             ("cluster.brokers.storage.size=large", "size"), ("spark.image.tag=:1", "tag")],
    }[chart]:  # fmt: skip
        refused = done(helm, "template", chart, str(CHARTS / chart), *KUBERNETES, "--set", flag)
        assert refused.returncode != 0 and said in refused.stderr.replace("/", "."), refused.stderr


def test_it_renders_what_helm_4_renders(helm: str) -> None:
    for name, render in renders.ALL.items():
        made = done(helm, "template", render.chart, str(CHARTS / render.chart), *KUBERNETES, *render.words())
        assert made.returncode == 0, made.stderr
        assert documents(made.stdout) == documents((renders.FOLDER / f"{name}.yaml").read_text()), name


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A server of its own: kinds are deleted here."""
    require("etcd", "kube-apiserver", "helm")
    with ControlPlane(tmp_path_factory.mktemp("versions")) as running:
        prepare(running)
        running.admin.apply(f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {RELEASED}}}}}")
        yield running


@contextmanager
def jobs_run(plane: ControlPlane, folder: Path) -> Iterator[list[str]]:
    """What a Job's controller and a node would do, in a thread: names of the Jobs that came.

    The Job of the kinds is run, as its account; that of leaving, which waits for a Lease, is only said to have worked.
    """
    seen: list[str] = []
    is_over = threading.Event()

    def work() -> None:
        while not is_over.wait(0.1):
            for job in plane.admin.get(JOBS)["items"]:
                if not job.get("status", {}).get("completionTime"):
                    seen.append(command(job))
                    work_off(plane, folder, job)

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            yield seen
        finally:
            is_over.set()
        working.result()


def command(job: Document) -> str:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return str(container["command"][0])


def work_off(plane: ControlPlane, folder: Path, job: Document) -> None:
    name = job["metadata"]["name"]
    if command(job) == "gantry-operator-definitions":
        made = run(plane, folder, name, RELEASED)
        assert made.returncode == 0, made.stderr
    conditions = [{"type": each, "status": "True"} for each in ("SuccessCriteriaMet", "Complete")]
    times = {"startTime": ENDED, "completionTime": ENDED}
    plane.admin.merge(f"{JOBS}/{name}/status", {"status": times | {"succeeded": 1, "conditions": conditions}})


def test_the_documented_line_upgrades_with_its_hooks_and_an_uninstallation_has_its_own(
    helm: str, bare: ControlPlane, tmp_path: Path
) -> None:
    line = upgrading.line()
    flags = line.split()[line.split().index("gantrymq-system") + 1 :]
    assert flags == ["--reset-then-reuse-values"]
    chart = CHARTS / "gantrymq"
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    former = shutil.copytree(chart, tmp_path / "former")
    (former / "Chart.yaml").write_text(yaml.safe_dump(about | {"version": "0.0.9", "appVersion": "0.0.9"}))

    def does(*words: str) -> list[str]:
        """The Jobs that ran for it."""
        authority = str(bare.authority.folder / "ca.crt")
        where = ["--kube-apiserver", bare.server, "--kube-token", ADMIN_TOKEN, "--kube-ca-file", authority]
        with jobs_run(bare, tmp_path) as jobs:
            ended = done(helm, *words, "--namespace", RELEASED, *where)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return jobs

    kept = ["--set", "operator.replicas=1,monitoring.dashboards=false"]
    assert does("install", "former", str(former), *kept) == ["gantry-operator-definitions"]
    assert running(bare) == ("docker.io/gantrymq/operator:0.0.9", "docker.io/gantrymq/broker:0.0.9", 1)
    put(bare, olderkinds.definition())  # as that version would have had it
    until(lambda: is_served(bare, {olderkinds.GONE: "kept"}, olderkinds.NEW), "the older kind is served")
    assert does("upgrade", "former", str(chart), *flags) == ["gantry-operator-definitions"]
    version = about["appVersion"]
    assert running(bare) == (f"docker.io/gantrymq/operator:{version}", f"docker.io/gantrymq/broker:{version}", 1)
    until(lambda: is_served(bare, {olderkinds.NEW: "broker:2"}, olderkinds.GONE), "the new kind is served")
    assert does("uninstall", "former") == ["gantry-operator-leave"]
    left: list[Any] = bare.admin.get(f"/apis/apps/v1/namespaces/{RELEASED}/deployments")["items"]
    assert not left and bare.admin.get(f"{DEFINITIONS}/brokerclusters.gantrymq.io")
