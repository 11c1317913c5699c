"""The kinds of prometheus-operator that our charts and manifests make objects of, as its own module has them."""

from __future__ import annotations

import tarfile

from testkit.kube import binaries

KINDS = "monitoring-kinds.tgz"
_FILES = ("podmonitors", "prometheusrules", "servicemonitors")


def definitions() -> list[str]:
    """Their CustomResourceDefinitions, each as a YAML text."""
    with tarfile.open(binaries.program(KINDS)) as packed:
        files = [packed.extractfile(f"prometheus-operator/monitoring.coreos.com_{each}.yaml") for each in _FILES]
        return [each.read().decode() for each in files if each is not None]
