"""The chart as helm sees it: it lints, refuses what it does not know, and renders what its values say."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml

from e2e.conftest import require
from testkit.kube import binaries
from testkit.kube.registers import rendered
from testkit.sources import ROOT

CHART = ROOT / "charts" / "gantrymq"


@pytest.fixture(autouse=True)
def helm() -> None:
    require("helm")


def test_helm_finds_nothing_to_complain_about() -> None:
    command = [str(binaries.program("helm")), "lint", "--strict", str(CHART)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("flag", ["admissionPolicy.enabled=perhaps", "admissionPolicies.enabled=true"])
def test_a_value_that_the_chart_does_not_know_is_refused(flag: str) -> None:
    command = [str(binaries.program("helm")), "template", "gantrymq", str(CHART), "--set", flag]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "admissionPolic" in done.stderr


def test_the_admission_policy_is_a_choice() -> None:
    policy = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert policy <= kinds()
    assert not policy & kinds("--set", "admissionPolicy.enabled=false")


def test_rights_are_as_wide_as_what_is_watched() -> None:
    assert {"ClusterRole", "ClusterRoleBinding"} <= kinds()
    narrow = kinds("--set", "watch.namespaces={one,two}")
    assert {"Role", "RoleBinding"} <= narrow and "ClusterRole" not in narrow


def test_dashboards_are_there_for_grafana_and_alerts_where_the_cluster_knows_rules() -> None:
    made = [each for each in yaml.safe_load_all(rendered("gantrymq")) if each and each["kind"] == "ConfigMap"]
    boards = [each for each in made if each["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert len(boards) == len(list((CHART / "dashboards").iterdir()))
    assert all(json.loads(text)["uid"] for each in boards for text in each["data"].values())
    assert "PrometheusRule" not in kinds()
    assert "PrometheusRule" in kinds("--api-versions", "monitoring.coreos.com/v1/PrometheusRule")
    assert "ConfigMap" not in kinds("--set", "monitoring.dashboards=false")


def kinds(*flags: str) -> set[str]:
    return {each["kind"] for each in yaml.safe_load_all(rendered("gantrymq", *flags)) if each}
