"""Kubeflow's spark-operator on a test cluster: the real one, by its own chart, with an image made here.

It calls the spark-submit of the image that it is in, so it stands in front of our Spark.  Its chart names a registry of
its own; the image is loaded under the name that the values make.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from pathlib import Path

from testkit.kube import binaries, images, projectimages
from testkit.kube.cluster import Cluster

SYSTEM = "spark-operator"
NAME = "docker.io/local/spark-operator:1"
DOCKERFILE = Path(__file__).with_name("sparkoperator.dockerfile")
PROGRAM, CHART = "spark-operator", "spark-operator-chart.tgz"
_VALUES = ("image.registry=docker.io", "image.repository=local/spark-operator", "image.tag=1")


def tar() -> Path:
    """The image, built if what it is made of has changed."""
    spark, program = projectimages.tar(projectimages.SPARK), binaries.program(PROGRAM)
    parts = (DOCKERFILE.read_bytes(), spark.name.encode(), binaries.PROGRAMS[PROGRAM].digest.encode())
    wanted = images.folder() / f"sparkoperator-{hashlib.sha256(b''.join(parts)).hexdigest()[:16]}.tar"
    if not wanted.exists():
        projectimages.stands_on(projectimages.name(projectimages.SPARK), spark)
        with tempfile.TemporaryDirectory(prefix="gantrymq-spark-operator-") as folder:
            shutil.copy(program, folder)
            projectimages.bud(Path(folder), DOCKERFILE, NAME, wanted)
    return wanted


def definitions() -> list[str]:
    """The kinds, as the chart brings them."""
    with tarfile.open(binaries.program(CHART)) as packed:
        found = [each for each in packed.getmembers() if "/crds/" in each.name and each.isfile()]
        texts = [packed.extractfile(each) for each in sorted(found, key=lambda each: each.name)]
        return [each.read().decode() for each in texts if each is not None]


def install(cluster: Cluster, *namespaces: str) -> None:
    """It looks after applications in these namespaces, which are there; accounts of drivers are not made for it."""
    watched = ",".join(namespaces)
    values = [*_VALUES, f"spark.jobNamespaces={{{watched}}}", "spark.serviceAccount.create=false"]
    flags = [word for value in (*values, "spark.rbac.create=false") for word in ("--set", value)]
    chart = str(binaries.program(CHART))
    cluster.helm("install", "spark-operator", chart, "--namespace", SYSTEM, "--create-namespace", *flags)
