"""What README.md and the charts' notes tell people to type, typed: each line as it stands there, on four real kubelets.

Only what surrounds a line is given here: where the cluster is (KUBECONFIG), and that its nodes have the images.
"""

from __future__ import annotations

import shlex
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testkit.kube import olderkinds, projectimages, shell
from testkit.kube.api import RefusedError
from testkit.kube.cluster import Cluster, condition
from testkit.pairplay import until
from testkit.sources import ROOT

CHART = ROOT / "charts" / "gantrymq"
TITLES = {"README.md": "## On Kubernetes", "README.zh-CN.md": "## 在 Kubernetes 上"}
KIND = "brokerclusters.gantrymq.io"
DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{KIND}"
HOME = "/apis/gantrymq.io/v1alpha1/namespaces/default/brokerclusters"
WITHIN_S = 300.0


def section(name: str) -> str:
    text = (ROOT / name).read_text(encoding="utf-8")
    return text.partition(TITLES[name])[2].partition("\n## ")[0]


def lines(text: str, *programs: str) -> list[str]:
    """Commands of these programs that stand indented in a document, without their remarks."""
    found = [line.strip().partition("   #")[0].rstrip() for line in text.splitlines() if line.startswith("    ")]
    return [line for line in found if line.split(" ")[0] in programs]


def done(cluster: Cluster, command: str) -> str:
    result = shell.run(cluster, command)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}{trouble(cluster)}"
    return result.stdout


def trouble(cluster: Cluster) -> str:
    """What a person would look at next."""
    looks = ("get pods,brokerclusters -A -o wide", "get events -A --sort-by=.lastTimestamp")
    return "\n".join(shell.run(cluster, f"kubectl {look} | tail -40").stdout for look in looks)


def test_both_readmes_name_the_images_that_are_built_and_installed() -> None:
    wanted = {projectimages.charted(target) for target in projectimages.TARGETS}
    for name in TITLES:
        built = [shlex.split(line) for line in lines(section(name), "docker")]
        made = {words[words.index("--target") + 1]: words[words.index("-t") + 1] for words in built}
        assert set(made) == set(projectimages.TARGETS)
        assert {f"docker.io/{image}" for image in made.values()} == wanted
        (loaded,) = (line.split() for line in lines(section(name), "kind"))
        assert set(loaded[3:]) == set(made.values())


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> Iterator[Cluster]:
    shell.load(cluster)
    yield cluster


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_each_line_of_the_quick_start_does_what_it_says(nodes: Cluster, tmp_path: Path) -> None:
    commands = lines(section("README.md"), "helm", "kubectl")
    *before, kill, watch = commands
    assert "delete pod" in kill and watch.endswith("--watch"), commands
    said = {command: done(nodes, command) for command in before}
    consumed = next(text for command, text in said.items() if " consume " in command)
    assert "250 g" in consumed
    former = done(nodes, "kubectl get pods -l gantrymq.io/role=master -o name").split()
    assert len(former) == 1
    watching = shell.begin(nodes, watch, tmp_path / "watched")
    try:
        done(nodes, kill)
        until(lambda: leads_again(tmp_path / "watched", former[0].removeprefix("pod/")), "another one leads", WITHIN_S)
    finally:
        watching.kill()
        watching.wait()
    produce = next(command for command in before if " produce " in command)
    until(lambda: shell.run(nodes, produce).returncode == 0, "messages go on", WITHIN_S)
    forget(nodes, "default", "orders")
    done(nodes, "helm uninstall gantrymq --namespace gantrymq-system")


def leads_again(watched: Path, former: str) -> bool:
    """Whether a line of the watch shows another pod as master."""
    rows = [line.split() for line in watched.read_text().splitlines()]
    return any(row[-1] == "master" and row[0] != former for row in rows if row)


def forget(cluster: Cluster, namespace: str, name: str) -> None:
    """A cluster with all that it keeps."""
    on = f"kubectl --namespace {namespace}"
    done(cluster, f"{on} delete brokercluster {name} --timeout=120s")
    pods = f"{on} get pods -l gantrymq.io/cluster={name} -o name"
    until(lambda: not shell.run(cluster, pods).stdout.strip(), "its pods are gone", WITHIN_S)
    done(cluster, f"{on} delete pvc,lease -l gantrymq.io/cluster={name} --timeout=120s")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_upgrade_from_an_older_chart_brings_its_kinds_and_the_notes_of_both_charts_work(
    nodes: Cluster, tmp_path: Path
) -> None:
    former = tmp_path / "gantrymq"
    shutil.copytree(CHART, former)
    (former / "crds" / "gantrymq.io_brokerclusters.yaml").write_text(yaml.safe_dump(olderkinds.definition()))
    done(nodes, f"kubectl delete crd {KIND} --ignore-not-found --timeout=120s")
    # Without its Job, which is of this version: the kinds are to be the older ones.
    done(nodes, f"helm install gantrymq {former} --namespace gantrymq-system --create-namespace --no-hooks")
    made = f"kubectl create -f - <<END\n{yaml.safe_dump(small('kept'))}END"
    until(lambda: shell.run(nodes, made).returncode == 0, "the older kind is served", WITHIN_S)
    uid = nodes.admin.get(f"{HOME}/kept")["metadata"]["uid"]
    upgrade = "helm upgrade gantrymq charts/gantrymq --namespace gantrymq-system --reset-then-reuse-values"
    assert upgrade in " ".join((ROOT / "operator/docs/operator.md").read_text().split())
    done(nodes, upgrade)
    properties = spec_properties(nodes)
    assert olderkinds.NEW in properties and olderkinds.GONE not in properties
    assert nodes.admin.get(f"{HOME}/kept")["metadata"]["uid"] == uid
    until(lambda: condition(nodes.admin.get(f"{HOME}/kept"), "Ready") == "True", "what was there works", WITHIN_S)
    assert not done(nodes, "kubectl get jobs,clusterroles,serviceaccounts -A -o name | grep crds || true")
    forget(nodes, "default", "kept")
    notes_work(nodes, "gantrymq", "gantrymq-system", "default", "orders")
    done(nodes, "helm install shop charts/gantrymq-cluster --namespace trade --create-namespace")
    notes_work(nodes, "shop", "trade", "trade", "shop")
    done(nodes, "helm uninstall gantrymq --namespace gantrymq-system")


def small(name: str) -> dict[str, object]:
    """A cluster of one broker."""
    brokers = {"replicasPerGroup": 1, "profile": "fast", "config": {"store.segment_bytes": "16MiB"}}
    spec = {"nameserver": {"replicas": 1}, "brokers": brokers}
    return {"apiVersion": "gantrymq.io/v1alpha1", "kind": "BrokerCluster", "metadata": {"name": name}, "spec": spec}


def spec_properties(cluster: Cluster) -> dict[str, object]:
    try:
        (version,) = cluster.admin.get(DEFINITION)["spec"]["versions"]
    except RefusedError:
        return {}
    found: dict[str, object] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return found


def notes_work(cluster: Cluster, release: str, namespace: str, home: str, name: str) -> None:
    """Each line that the notes of a release indent, with its here-documents."""
    notes = done(cluster, f"helm get notes {release} --namespace {namespace}")
    blocks = [textwrap.dedent(block) for block in notes.split("\n\n") if block.startswith("    ")]
    typed = [block for block in blocks if "--watch" not in block]
    assert any("produce" in block for block in typed) and any("consume" in block for block in typed)
    said = "".join(done(cluster, block) for block in typed)
    assert "two pounds of Assam" in said
    forget(cluster, home, name)
