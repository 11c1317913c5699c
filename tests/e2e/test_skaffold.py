"""skaffold.yaml, read by the real skaffold: what it builds, and what each profile would bring into a cluster.

This skaffold speaks to helm 3, and the helm of the tests is 4, which has other words for two things: its version, and a
program that looks over what was rendered.  HELM says them for it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.conftest import require
from testkit.kube import binaries, projectimages
from testkit.sources import ROOT

HELM = """#!/usr/bin/env bash
if [ "$1" = version ]; then echo 'version.BuildInfo{Version:"v3.18.0"}'; exit; fi
words=(); renderer=cat
while [ $# -gt 0 ]; do
  if [ "$1" = --post-renderer ]; then renderer=$2; shift; else words+=("$1"); fi
  shift
done
set -o pipefail
PROGRAM "${words[@]}" | "$renderer"
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def programs() -> None:
    require("skaffold", "helm", "kubectl")


def skaffold(home: Path, *words: str) -> str:
    (home / ".skaffold").mkdir(exist_ok=True)
    (home / ".skaffold/config").write_text("global: {collect-metrics: false}")
    (home / "helm").write_text(HELM.replace("PROGRAM", str(binaries.program("helm"))))
    (home / "helm").chmod(0o755)
    environment = os.environ | {
        "HOME": str(home),
        "KUBECONFIG": str(home / "none"),
        "PATH": f"{home}:{binaries.program('skaffold').parent}:{os.environ['PATH']}",
        "SKAFFOLD_UPDATE_CHECK": "false",
        "SKAFFOLD_INTERACTIVE": "false",
    }
    command = [str(binaries.program("skaffold")), *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def diagnosed(home: Path, *flags: str) -> dict[str, Any]:
    """The configuration as skaffold understands it."""
    found: dict[str, Any] = yaml.safe_load(skaffold(home, "diagnose", "--yaml-only", *flags))
    return found


def rendered(home: Path, *flags: str) -> list[dict[str, Any]]:
    """What would be deployed, with images that were built elsewhere."""
    made = home / "made.yaml"
    built = (*projectimages.TARGETS, *([projectimages.SPARK] if any("spark" in each for each in flags) else ()))
    images = [word for each in built for word in ("--images", f"gantrymq/{each}:built")]
    skaffold(home, "render", "--offline=true", "--digest-source=tag", "--output", str(made), *images, *flags)
    return [each for each in yaml.safe_load_all(made.read_text()) if each]


@pytest.mark.parametrize(
    ("flags", "targets"),
    [((), projectimages.TARGETS), (("-p", "full,spark"), (*projectimages.TARGETS, projectimages.SPARK))],
    ids=["usual", "spark"],
)
def test_skaffold_builds_the_targets_of_the_dockerfile(
    tmp_path: Path, flags: tuple[str, ...], targets: tuple[str, ...]
) -> None:
    artifacts = diagnosed(tmp_path, *flags)["build"]["artifacts"]
    built = {each["image"]: each["docker"]["target"] for each in artifacts}
    assert built == {f"gantrymq/{each}": each for each in targets}


def test_jobs_of_spark_run_with_the_image_that_was_built(tmp_path: Path) -> None:
    made = rendered(tmp_path, "-p", "dev,spark")
    jobs = [each["spec"].get("template", each["spec"]) for each in made if each["kind"].endswith("SparkApplication")]
    assert {each["image"] for each in jobs} == {"gantrymq/spark:built"} and len(jobs) == 3


@pytest.mark.parametrize(
    ("profile", "operators", "members"), [((), 2, None), (("-p", "dev"), 1, 1), (("-p", "full"), 2, 3)]
)
def test_a_profile_brings_the_operator_with_the_images_that_were_built_and_its_cluster(
    tmp_path: Path, profile: tuple[str, ...], operators: int, members: int | None
) -> None:
    made = rendered(tmp_path, *profile)
    (operator,) = (each for each in made if each["kind"] == "Deployment")
    assert operator["spec"]["replicas"] == operators
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert container["image"] == "gantrymq/operator:built"
    assert environment["GANTRY_OPERATOR_BROKER_IMAGE"] == "gantrymq/broker:built"
    clusters = [each["spec"]["brokers"]["replicasPerGroup"] for each in made if each["kind"] == "BrokerCluster"]
    assert clusters == ([] if members is None else [members])
