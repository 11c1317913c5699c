"""The manifests of spark/kubernetes: what the chart gantrymq-cluster makes of its example, as files for kubectl.

`PYTHONPATH=tests python -m testkit.kube.sparkmanifests` writes them again; so they and the chart cannot differ.  Helm's
own labels are left out, and who made which file stands in its first line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from testkit.kube.registers import rendered
from testkit.sources import ROOT

FOLDER = ROOT / "spark" / "kubernetes"
CHART = "gantrymq-cluster"
EXAMPLE = ROOT / "charts" / CHART / "examples" / "spark.yaml"
CLUSTER, NAMESPACE, JOBS_NAMESPACE = "orders", "messaging", "spark"
_FIRST = "# Rendered from the example of charts/gantrymq-cluster: python -m testkit.kube.sparkmanifests\n"
_OWN = re.compile(r"^ *(helm\.sh/|app\.kubernetes\.io/|# Source: |# What was archived is not un).*\n", re.MULTILINE)
_EMPTY = re.compile(r"^  (labels|annotations):\n(?!    )", re.MULTILINE)
_PARTS = {"rights": "spark-rights", "volume": "spark-volume", "monitor": "spark-monitor", "": "spark-jobs"}


def files() -> dict[str, str]:
    """Name -> text."""
    return {name: _FIRST + "---\n".join(documents) for name, documents in _gathered().items()}


def _gathered() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, template in _PARTS.items():
        for document in _documents(template):
            found.setdefault(f"{name or _job(document)}.yaml", []).append(document)
    return found


def _documents(template: str) -> Iterator[str]:
    flags = ("--namespace", NAMESPACE, "-f", str(EXAMPLE), "--set", f"name={CLUSTER}")
    knows = ("--api-versions", "monitoring.coreos.com/v1/PodMonitor")
    text = rendered(CHART, *flags, *knows, "--show-only", f"templates/{template}.yaml")
    for part in re.split(r"^---\n", text, flags=re.MULTILINE):
        document = _EMPTY.sub("", _EMPTY.sub("", _OWN.sub("", part)))
        if document.strip():
            yield document


def _job(document: str) -> str:
    """orders-archive of the topic `orders` is archive, with its files."""
    (name,) = re.findall(r"^metadata:\n  name: (\S+)$", document, re.MULTILINE)
    return str(name).removeprefix(f"{CLUSTER}-").removesuffix("-files")


if __name__ == "__main__":
    for path in FOLDER.glob("*.yaml"):
        path.unlink()
    for name, text in files().items():
        (FOLDER / name).write_text(text)
