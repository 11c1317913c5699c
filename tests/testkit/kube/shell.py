"""A cluster of four real kubelets to try things on: `make cluster`, as root.

It brings the cluster up, gives its nodes the project's images under the names that the chart's values have, and opens a
shell in which kubectl and helm know it.  With the shell the cluster ends.  Tests run the commands of documents in the
same surroundings, so what stands there works here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from testkit.kube import binaries, images, projectimages
from testkit.kube.cluster import Cluster
from testkit.sources import ROOT

_SAID = """
Four nodes are ready, with GantryMQ's images. kubectl and helm know them; README.md, On Kubernetes, says what to try.
Leave this shell, and the cluster ends.
"""


def load(cluster: Cluster) -> None:
    """The images, as the chart's values name them."""
    cluster.load([projectimages.tar(target) for target in projectimages.TARGETS])
    for target in projectimages.TARGETS:
        tag(cluster, target, projectimages.charted(target))


def tag(cluster: Cluster, target: str, wanted: str) -> None:
    """An image that is loaded, by another name too."""
    for node in cluster.nodes:
        node.run("ctr", "-n", "k8s.io", "image", "tag", "--force", projectimages.name(target), wanted)


def surroundings(cluster: Cluster) -> dict[str, str]:
    """The environment of a command that is to know the cluster."""
    programs = str(binaries.program("kubectl").parent)
    settings = cluster.folder / "admin.kubeconfig"
    return {**os.environ, "KUBECONFIG": str(settings), "PATH": f"{programs}:{os.environ['PATH']}"}


def run(cluster: Cluster, command: str, within_s: float = 600.0) -> subprocess.CompletedProcess[str]:
    """A line of a document, in the repository's folder."""
    words = [*cluster.inside, "bash", "-c", command]
    return subprocess.run(
        words, cwd=ROOT, env=surroundings(cluster), capture_output=True, text=True, timeout=within_s, check=False
    )


def begin(cluster: Cluster, command: str, output: Path) -> subprocess.Popen[bytes]:
    """The same for a line that does not end by itself."""
    with output.open("wb") as file:
        words = [*cluster.inside, "setpriv", "--pdeathsig", "KILL", "bash", "-c", f"exec {command}"]
        return subprocess.Popen(words, cwd=ROOT, env=surroundings(cluster), stdout=file, stderr=file)


def main() -> int:
    """A shell; its exit status."""
    if os.geteuid():
        sys.exit("make cluster: only root may make networks and nodes; run it with sudo")
    with (
        tempfile.TemporaryDirectory(prefix="gantrymq-cluster-") as folder,
        Cluster(Path(folder), tars=[images.base()]) as cluster,
    ):
        load(cluster)
        print(_SAID)
        words = [*cluster.inside, os.environ.get("SHELL", "bash")]
        return subprocess.run(words, cwd=ROOT, env=surroundings(cluster), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
